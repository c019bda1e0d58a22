#pragma once

#include <cstdint>

#include "cephalo/model/gpt.h"

#pragma GCC visibility push(default)
namespace cephalo {

// What heads could do to each other and to tokens, from parameters alone. Every matrix that reads
// the residual stream has the norm before it folded in and is centred: C γ W, C = I − 1/d_model;
// every matrix that writes it is centred: W_O C. Biases are left out, and so is rotary, which
// depends on the distance. docs/effects.md writes it out.

// How much of what a later head reads is what an earlier one writes: ‖AB‖ / (‖A‖ ‖B‖), Frobenius,
// A = W_V W_O of the earlier head, B what the later one does with it:
enum class Composition {
  query,  // W_Q W_Kᵀ
  key,    // W_K W_Qᵀ
  value   // W_V W_O
};
struct CompositionScores {
  Tensor scores;    // [num_layers, num_heads, num_layers, num_heads], float64: [earlier][later];
                    // NaN where the first is not below the second, or a matrix is 0
  double baseline;  // the mean score of random matrices of these shapes, of N(0, 1)
};
CompositionScores composition(const Gpt& model, Composition kind, std::uint64_t seed = 123);

// Σλ / Σ|λ| over the eigenvalues of W_E W_V W_O W_U, of every head: 1 where each token that it
// looks at raises its own logit, −1 where it lowers it. NaN where the matrix is 0 or has NaN.
// -> [num_layers, num_heads], float64
Tensor copying(const Gpt& model);

}  // namespace cephalo
#pragma GCC visibility pop
