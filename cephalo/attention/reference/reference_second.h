#pragma once

#include "cephalo/attention/engine/second_problem.h"

namespace cephalo {

// The textbook's steps, each with how its result moves along a direction: every one stored.
void attend_tangent_reference(const SecondProblem& problem);
void attend_second_reference(const SecondProblem& problem);

}  // namespace cephalo
