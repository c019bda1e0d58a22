#pragma once

#include <vector>

#include "cephalo/attention/attend.h"
#include "cephalo/attention/kv_cache.h"

#pragma GCC visibility push(default)
namespace cephalo {

// Which part of the weights is wanted. Empty lists mean all.
struct WeightsSelection {
  std::vector<dim_t> heads = {};
  std::vector<dim_t> rows = {};  // query indices
  bool dropped = false;          // as they multiplied v: after dropout
};

// The weights that attend used, recomputed from q, k and the lse that it returned, in blocks:
// nothing larger than the answer is stored. `mask` and `options` are those of the call. With a
// cache the columns are positions.
// -> [batch, heads, rows, kv_tokens], float32 (float64 for float64)
Tensor weights(const TensorView& q, const TensorView& k, const TensorView& lse,
               const Mask& mask = {}, const AttendOptions& options = {},
               const WeightsSelection& selection = {});
Tensor weights(const TensorView& q, const KVCache& cache, const TensorView& lse,
               const Mask& mask = {}, const AttendOptions& options = {},
               const WeightsSelection& selection = {});

// One head seen from afar: cell (y, x) covers queries [y · q_tokens / cells, …) and keys likewise.
struct PooledWeights {
  Tensor largest;  // [cells_q, cells_k] the largest weight of the cell
  Tensor mean;     // [cells_q, cells_k] the mean over its pairs, hidden ones counting as 0
};

// In one pass over the pairs, whatever their number: memory for the cells alone.
PooledWeights pooled_weights(const TensorView& q, const TensorView& k, const TensorView& lse,
                             dim_t cells, dim_t head, dim_t batch = 0, const Mask& mask = {},
                             const AttendOptions& options = {});

// What the metrics of heads are means of, for every query row of every head.
enum class RowSum {
  entropy,        // −Σ weight · ln weight
  largest,        // max weight
  distance,       // Σ weight · |position − key|
  previous,       // weight of the key before its own position
  first,          // weight of key 0
  current,        // weight of the key at its own position
  visible,        // how many keys it may look at
  duplicate,      // Σ weight of earlier keys with the same token; 0 without tokens
  has_duplicate,  // 1 when there is such a key
  induction,      // Σ weight of earlier keys that follow the same token
  has_induction
};
inline constexpr dim_t kRowSums = 11;

// tokens: int64 [kv_tokens], the ids behind the keys, or empty; a query's own token is the one at
// its position.
// -> [batch, num_heads, q_tokens, kRowSums], float64
Tensor row_sums(const TensorView& q, const TensorView& k, const TensorView& lse,
                const TensorView& tokens = {}, const Mask& mask = {},
                const AttendOptions& options = {});

}  // namespace cephalo
#pragma GCC visibility pop
