// Our kernels against dnnl_sgemm in one process, by turns: what fraction of a good matrix product
// they reach. Usage: yardstick [--threads 1,2] [--rounds 15] [--rows NAME]
#include <omp.h>
#include <dnnl.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "cephalo/attention/attend.h"
#include "cephalo/core/cpu.h"
#include "cephalo/core/parallel.h"
#include "cephalo/core/random.h"

namespace {

using namespace cephalo;
using Clock = std::chrono::steady_clock;

double seconds_of(const std::function<void()>& f) {
  const auto begin = Clock::now();
  f();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

struct Work {
  std::string name;
  double flops;
  std::function<void()> run;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// After a switch of library: calls of 20 ms or more go untimed (the other's threads still spin),
// then three are timed.
double timed_turn(const Work& work) {
  double warm = 0.0;
  while (warm < 0.020) warm += seconds_of(work.run);
  double best = 1e9;
  for (int k = 0; k < 3; ++k) best = std::min(best, seconds_of(work.run));
  return best;
}

Tensor normal(const Shape& shape, std::uint64_t seed) {
  TorchGenerator generator(seed);
  return generator.randn(shape);
}

struct Yardstick {
  Tensor a = normal({4096, 768}, 1), b = normal({2304, 768}, 2), c = Tensor::empty({4096, 2304});
  void run() {
    dnnl_sgemm('N', 'T', 4096, 2304, 768, 1.0F, a.data_as<float>(), 768, b.data_as<float>(), 768,
               0.0F, c.mutable_data_as<float>(), 2304);
  }
  static double flops() { return 2.0 * 4096 * 768 * 2304; }
};

struct Arrays {
  Tensor q, k, v, out;
  Arrays(dim_t batch, dim_t heads, dim_t tokens, dim_t dim)
      : q(normal({batch, heads, tokens, dim}, 3)),
        k(normal({batch, heads, tokens, dim}, 4)),
        v(normal({batch, heads, tokens, dim}, 5)),
        out(Tensor::empty({batch, heads, tokens, dim})) {}
};

}  // namespace

int main(int argc, char** argv) {
  std::vector<int> counts{1, 2};
  int rounds = 15;
  std::string only;
  for (int k = 1; k + 1 < argc; k += 2) {
    if (std::strcmp(argv[k], "--threads") == 0) counts = {std::atoi(argv[k + 1])};
    if (std::strcmp(argv[k], "--rounds") == 0) rounds = std::atoi(argv[k + 1]);
    if (std::strcmp(argv[k], "--rows") == 0) only = argv[k + 1];
  }
  struct Row {
    const char* name;
    dim_t batch, heads, tokens, dim;
    Mask mask;
    double pairs;  // visible, of one head
  };
  const auto causal_pairs = [](double t) { return t * (t + 1) / 2; };
  const std::vector<Row> rows = {
      {"4x12x1024x64 causal", 4, 12, 1024, 64, causal(), causal_pairs(1024)},
      {"4x12x1024x64 full", 4, 12, 1024, 64, {}, 1024.0 * 1024},
      {"1x12x4096x64 causal", 1, 12, 4096, 64, causal(), causal_pairs(4096)},
      {"1x16x8192x64 causal", 1, 16, 8192, 64, causal(), causal_pairs(8192)},
      {"1x32x2048x128 causal", 1, 32, 2048, 128, causal(), causal_pairs(2048)},
      {"1x12x16384x64 window", 1, 12, 16384, 64, window(255, 0), 16384.0 * 256 - 255.0 * 128},
  };
  std::printf("instruction set %s\n", name(current_isa()));
  Yardstick yardstick;
  for (const Row& row : rows) {
    if (!only.empty() && std::string(row.name).find(only) == std::string::npos) continue;
    Arrays a(row.batch, row.heads, row.tokens, row.dim);
    for (const int count : counts) {
      omp_set_num_threads(count);
      set_threads(count);
      const Work ours{
          row.name, 4.0 * row.pairs * static_cast<double>(row.batch * row.heads * row.dim),
          [&] { attend_into({a.out}, a.q, a.k, a.v, row.mask, {.engine = Engine::fused}); }};
      const Work theirs{"dnnl_sgemm", Yardstick::flops(), [&] { yardstick.run(); }};
      double best_ours = 1e9;
      double best_theirs = 1e9;
      std::vector<double> ratios;
      for (int round = 0; round < rounds; ++round) {
        const double mine = timed_turn(ours);
        const double other = timed_turn(theirs);
        best_ours = std::min(best_ours, mine);
        best_theirs = std::min(best_theirs, other);
        ratios.push_back(ours.flops / mine / (theirs.flops / other));
      }
      std::printf("%-24s %d threads: %6.1f GF, dnnl_sgemm %6.1f GF, best/best %.3f, median %.3f\n",
                  row.name, count, ours.flops / best_ours / 1e9, theirs.flops / best_theirs / 1e9,
                  ours.flops / best_ours / (theirs.flops / best_theirs), median(ratios));
      std::fflush(stdout);
    }
  }
}
