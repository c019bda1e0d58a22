#pragma once

#include "cephalo/attention/engine/problem.h"

namespace cephalo {

// The fused engine: one pass over tiles, memory linear in tokens, every mask of the algebra.
// Bits depend on the instruction set, the sizes and the mask, never on strides or threads. With
// more than kMostDecodeQueries queries context may lie where q lies: rows are read before they are
// written.
void attend_fused(const AttendProblem& problem, const AttendOutput& output);

// Bytes that it needs besides inputs and results, over all threads.
std::size_t fused_scratch_bytes(const AttendProblem& problem);

}  // namespace cephalo
