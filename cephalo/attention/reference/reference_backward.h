#pragma once

#include "cephalo/attention/engine/backward_problem.h"

namespace cephalo {

// The textbook backwards: every step stored, memory grows with q_tokens × kv_tokens.
void attend_backward_reference(const BackwardProblem& problem);

}  // namespace cephalo
