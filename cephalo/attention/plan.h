#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cephalo/attention/attend.h"
#include "cephalo/core/cpu.h"

#pragma GCC visibility push(default)
namespace cephalo {

// What a call of attend will do, without doing it.
//
// The fused engine refuses one thing:
//   dropout from the torch or torch_mkl stream: its numbers come in the memory order of the whole
//   weights matrix, one after another, so the matrix must be walked as PyTorch walks it.
// Taps on the scores (return_scores) store what was asked for: the reference engine computes them,
// whichever engine attends.
struct Plan {
  Engine engine;  // reference or fused
  Isa isa;        // whose kernels the fused engine runs
  struct Refusal {
    Engine engine;
    std::string reason;
  };
  std::vector<Refusal> refused;  // engines that cannot do it, with the reason
  struct OtherJob {
    std::string job;  // "weights", "scores"
    Engine engine;
  };
  std::vector<OtherJob> others;  // results besides context and lse, and who computes them
  double flops;                  // multiplications and additions on pairs that positions allow
  double bytes;                  // read and written, each tensor once
  std::size_t scratch;           // bytes besides inputs and results, over all threads

  std::string to_string() const;
};

// What attend would do with these arguments, without doing it. Shapes as in attend.
Plan plan(const TensorView& q, const TensorView& k, const TensorView& v, const Mask& mask = {},
          const AttendOptions& options = {});

const char* name(Engine engine);  // "fused"

// The words for engines in every language, in the order of their numbers in C.
struct NamedEngine {
  const char* name;
  Engine engine;
};
std::vector<NamedEngine> named_engines();

}  // namespace cephalo
#pragma GCC visibility pop
