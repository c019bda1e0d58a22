#pragma once

#include "cephalo/attention/engine/engine.h"

namespace cephalo {

// Weights, maps and sums over rows by the textbook: from the matrix of all weights, stored. What
// they take is described in engine.h.
Tensor weights_reference(const AttendProblem& problem, const TensorView& lse,
                         const WeightsSelection& selection);
PooledWeights pooled_weights_reference(const AttendProblem& problem, const TensorView& lse,
                                       const HeadCells& cells);
Tensor row_sums_reference(const AttendProblem& problem, const TensorView& lse,
                          const TensorView& tokens);

}  // namespace cephalo
