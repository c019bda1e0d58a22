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

}  // namespace cephalo
