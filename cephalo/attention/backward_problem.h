#pragma once

#include <vector>

#include "cephalo/attention/attend_backward.h"
#include "cephalo/attention/problem.h"

namespace cephalo {

// Arguments of attend_backward after all checks, rank 4 (lse and dlse: 3): what every engine starts
// from.
struct BackwardProblem {
  AttendProblem forward;
  AttendPass pass;                // dlse may be empty
  AttendGradientViews gradients;  // dbias[n] belongs to the n-th bias of forward.mask.parts()
};

// The textbook backwards: every step stored, memory grows with q_tokens × kv_tokens.
void attend_backward_reference(const BackwardProblem& problem);

// In tiles, in memory linear in tokens.
void attend_backward_fused(const BackwardProblem& problem);

}  // namespace cephalo
