#pragma once

#include <functional>
#include <string>
#include <vector>

// What `cephalo bench` measures.
namespace cephalo::cli {

struct BenchValue {
  double value;
  double share = 0.0;  // of the limit; 0: there is none
  double limit = 0.0;  // the FMA rate that was read by turns with it; 0: none was
};

struct BenchLine {
  std::string name;
  std::string unit;
  std::vector<BenchValue> values;  // one for each thread count
};

struct BenchSection {
  std::string title;
  std::vector<BenchLine> lines;
};

struct BenchSettings {
  std::vector<int> threads;  // 1 and N
  bool quick = false;        // sizes for a look at the table, not at the machine
  double budget() const { return quick ? 0.01 : 0.3; }  // seconds for one figure
};

BenchLine bench_fma(const BenchSettings& settings, const std::string& name);
BenchSection bench_memory(const BenchSettings& settings);
BenchSection bench_kernels(const BenchSettings& settings);  // shares are still to be filled in
BenchSection bench_decode(const BenchSettings& settings);
BenchSection bench_calls(const BenchSettings& settings);

}  // namespace cephalo::cli
