#pragma once

#include "cephalo/attention/engine/problem.h"

namespace cephalo {

// More queries are worth packing the keys for.
inline constexpr dim_t kMostDecodeQueries = 8;

// Few queries against many keys, which are read where they lie: part of the fused engine. Long key
// ranges are cut into chunks of fixed size, so that one head of one sequence can use all threads
// and the bits do not depend on how many there are.
bool is_decode(const AttendProblem& problem);
void attend_decode(const AttendProblem& problem, const AttendOutput& output);
std::size_t decode_scratch_bytes(const AttendProblem& problem);

}  // namespace cephalo
