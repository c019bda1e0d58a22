// What one small call on a GPU costs the host: the time until it returns, in microseconds. The
// queue is emptied now and then, so that nobody waits for the GPU.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <vector>

#include "cephalo/attention/attend_backward.h"
#include "cephalo/core/format.h"
#include "cephalo/core/random.h"

namespace {

using cephalo::Tensor;

constexpr cephalo::Device kGpu{cephalo::DeviceKind::cuda, 0};
constexpr int kCalls = 20, kBursts = 200;

// The median of all calls. done: waited for after each burst.
double micros_of(const std::function<void()>& call, const Tensor& done) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> micros;
  for (int burst = 0; burst < kBursts; ++burst) {
    for (int n = 0; n < kCalls; ++n) {
      const auto begin = Clock::now();
      call();
      micros.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
    }
    Tensor::copy(done, cephalo::Device{});
  }
  std::nth_element(micros.begin(), micros.begin() + kCalls * kBursts / 2, micros.end());
  return micros[kCalls * kBursts / 2];
}

}  // namespace

int main() {
  using namespace cephalo;
  const auto there = [](const Shape& shape, std::uint64_t seed) {
    return Tensor::copy(Tensor::copy(TorchGenerator(seed).randn(shape), DType::bf16), kGpu);
  };
  const Shape shape{1, 16, 128, 64};
  const Tensor q = there(shape, 1), k = there(shape, 2), v = there(shape, 3);
  const Tensor dcontext = there(shape, 4);
  Tensor context = Tensor::empty(shape, DType::bf16, kGpu);
  Tensor lse = Tensor::empty({1, 16, 128}, DType::f32, kGpu);
  Tensor dq = Tensor::empty(shape, DType::bf16, kGpu), dk = Tensor::empty(shape, DType::bf16, kGpu);
  Tensor dv = Tensor::empty(shape, DType::bf16, kGpu);
  const Mask mask = causal();
  const auto report = [](const char* what, double micros) {
    std::fputs(format_text("| {} | {:.1f} |\n", what, micros).c_str(), stdout);
  };
  std::fputs("| a call, (1, 16, 128, 64), bfloat16, causal | µs of the host |\n|---|---|\n",
             stdout);
  const auto forward = [&] { attend_into({context, lse}, q, k, v, mask); };
  micros_of(forward, lse);  // warms up
  report("attend_into", micros_of(forward, lse));
  report("attend", micros_of([&] { attend(q, k, v, mask, {.return_lse = true}); }, lse));
  report("attend_backward_into",
         micros_of(
             [&] {
               attend_backward_into({dq, dk, dv}, {context, lse, dcontext}, q, k, v, mask);
             },
             dq));
}
