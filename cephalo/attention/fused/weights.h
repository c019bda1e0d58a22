#pragma once

#include "cephalo/attention/engine/engine.h"

namespace cephalo {

// Weights, maps and sums over rows by the fused engine, in tiles: nothing larger than the answer is
// stored. What they take is described in engine.h.
Tensor weights_fused(const AttendProblem& problem, const TensorView& lse,
                     const WeightsSelection& selection);
PooledWeights pooled_weights_fused(const AttendProblem& problem, const TensorView& lse,
                                   const HeadCells& cells);
Tensor row_sums_fused(const AttendProblem& problem, const TensorView& lse,
                      const TensorView& tokens);

}  // namespace cephalo
