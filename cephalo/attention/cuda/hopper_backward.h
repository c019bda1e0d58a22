#pragma once

#include "cephalo/attention/engine/backward_problem.h"

namespace cephalo {

void attend_backward_on_hopper(const BackwardProblem& problem);
// Bytes of scratch, without what results in odd places need.
std::size_t hopper_backward_scratch(const AttendProblem& problem);

}  // namespace cephalo
