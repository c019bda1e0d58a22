// The cost of one small call from C++, beside which bench/call_cost.py puts the same from Python.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "cephalo/attention/attend.h"
#include "cephalo/core/format.h"
#include "cephalo/core/random.h"

int main() {
  using Clock = std::chrono::steady_clock;
  const cephalo::Tensor q = cephalo::TorchGenerator(0).randn({1, 12, 16, 64});
  std::vector<double> micros(1000);
  for (int round = 0; round < 2; ++round) {  // the first warms up
    for (double& each : micros) {
      const auto begin = Clock::now();
      const auto result = cephalo::attend(q, q, q);
      each = std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
    }
  }
  std::nth_element(micros.begin(), micros.begin() + 500, micros.end());
  std::fputs(cephalo::format_text("{:.2f}\n", micros[500]).c_str(), stdout);
}
