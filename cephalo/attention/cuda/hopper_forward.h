#pragma once

#include "cephalo/attention/engine/problem.h"
#include "cephalo/kernels/cuda/hopper.h"

namespace cephalo {

// Null: there are kernels for this problem, forward and backward.
const char* why_not_on_hopper(const AttendProblem& problem);
// Looks through documents, if there are any: once for each call.
kernels::cuda::Instance instance_of(const AttendProblem& problem);
// Of an instance that loads a bias.
kernels::cuda::BiasMap bias_map_of(const AttendProblem& problem);

void attend_on_hopper(const AttendProblem& problem, const AttendOutput& output);
// Bytes of scratch, without what results in odd places need.
std::size_t hopper_forward_scratch(const AttendProblem& problem);

}  // namespace cephalo
