#pragma once

#include <cstdint>

#include "cephalo/effects/sweep.h"

#pragma GCC visibility push(default)
namespace cephalo {

// What brings the answer of a clean text back into a corrupt one, part by part:
// recovered = (d − d_corrupt) / (d_clean − d_corrupt), d = logit(answer) − logit(wrong) at the last
// token.
struct Patching {
  double clean = 0.0;    // d of the clean text
  double corrupt = 0.0;  // and of the corrupt one
  bool divided = false;  // false: |clean − corrupt| < 0.1; then the tensors hold d itself
  Tensor positions;      // [num_layers, tokens], float64: resid_pre taken from the clean run
  Tensor heads;          // [num_layers, num_heads], float64: context at all positions
};

// A share of a smaller difference would mean nothing.
inline constexpr double kLeastDifference = 0.1;

// Both texts have as many tokens; an error otherwise. options.patch_from is the clean text's pass,
// whatever it says. Heads come first, then positions; NaN where progress stopped it.
Patching patch_each(const KeptPass& clean, const KeptPass& corrupt, std::int64_t answer,
                    std::int64_t wrong, const SweepOptions& options = {});

}  // namespace cephalo
#pragma GCC visibility pop
