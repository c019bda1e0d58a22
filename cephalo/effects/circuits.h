#pragma once

#include <cstdint>

#include "cephalo/model/gpt.h"

#pragma GCC visibility push(default)
namespace cephalo {

// How much a later head reads of what an earlier one writes, from parameters alone:
// ‖AB‖ / (‖A‖ ‖B‖), Frobenius, the norm before the later head folded in and centred. Rotary is
// ignored: it depends on the distance.
enum class Composition { query, key, value };
struct CompositionScores {
  Tensor scores;    // [num_layers, num_heads, num_layers, num_heads], float64: [earlier][later];
                    // NaN where the first is not below the second
  double baseline;  // the mean score of random matrices of these shapes
};
CompositionScores composition(const Gpt& model, Composition kind, std::uint64_t seed = 123);

// Σλ / Σ|λ| of W_E W_V W_O W_U, of every head: 1 where it copies, −1 where it does the opposite.
// -> [num_layers, num_heads], float64
Tensor copying(const Gpt& model);

}  // namespace cephalo
#pragma GCC visibility pop
