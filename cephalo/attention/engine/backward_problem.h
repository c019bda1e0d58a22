#pragma once

#include <cmath>
#include <vector>

#include "cephalo/attention/attend_backward.h"
#include "cephalo/attention/engine/problem.h"

namespace cephalo {

// Arguments of attend_backward after all checks, rank 4 (lse and dlse: 3): what every engine starts
// from.
struct BackwardProblem {
  AttendProblem forward;
  AttendPass pass;                // dlse may be empty
  AttendGradientViews gradients;  // dbias[n] belongs to the n-th bias of forward.mask.parts()
};

// Checks what attend_backward_into is given.
BackwardProblem make_backward_problem(const AttendGradientViews& gradients, const AttendPass& pass,
                                      const TensorView& q, const TensorView& k, const TensorView& v,
                                      const Mask& mask, const AttendOptions& options);
// Fills in the gradients.
void run_backward(const BackwardProblem& problem);

// Beyond 2^10 an lse is rounded by 2^-15 and more (of float32), and weights that are computed from
// it would not add up to 1: both engines then sum the row's weights first, and divide by that. A
// rectangle that lacks keys of the whole cannot: its weights are to add up to less.
inline bool divides_by_sum(const AttendProblem& forward, double lse) {
  return std::isfinite(lse) && std::abs(lse) > 1024.0 && forward.mask.has_all_keys();
}

// What every function that differentiates asks of its arguments; `function` begins the message.
// Tensors of the pass have q's type, which is k's and v's (lse and dlse: that of sums, float32 for
// 16 bits), and the shapes of attend's results. Without a gradient that comes back, dcontext and
// dlse are not looked at.
enum class ComesBack { gradient, nothing };
void check_pass(const AttendPass& pass, const TensorView& q, const TensorView& k,
                const TensorView& v, ComesBack comes_back, const char* function);
void check_like(const char* what, const TensorView& t, const TensorView& of, DType dtype,
                const char* function);
// One for each bias of the mask in that bias's shape, or none at all; `what` one is, and several.
struct BiasWords {
  const char* one;
  const char* several;
};
template <typename View>
void check_like_biases(const BiasWords& what, const std::vector<View>& given, const Mask& mask,
                       DType dtype, const char* function);

std::vector<TensorView> biases_of(const Mask& mask);

// The same at rank 4 (lse and dlse: 3).
AttendPass with_leading_ones(const AttendPass& pass);

}  // namespace cephalo
