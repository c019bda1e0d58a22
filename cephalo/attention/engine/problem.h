#pragma once

#include <memory>
#include <vector>

#include "cephalo/attention/attend.h"
#include "cephalo/attention/kv_cache.h"
#include "cephalo/mask/bound_mask.h"

namespace cephalo {

// Keys [j, j + count) of one sequence and one key head.
struct RowPlace {
  dim_t b, kv_head;
  dim_t j, count;
};

// Arguments of attend after all checks, rank 4: what every engine starts from. Borrows the tensors
// and the mask.
struct AttendProblem {
  TensorView q;  // [batch, num_heads, q_tokens, head_dim]
  TensorView k;  // [batch, num_kv_heads, kv_tokens, head_dim]
  TensorView v;  // [batch, num_kv_heads, kv_tokens, v_dim]
  BoundMask mask;
  double scale;
  AttendOptions options;
  const KVCache* cache;               // holds the rows of k and v, which are shapes alone then
  std::shared_ptr<const Mask> owned;  // the mask with the cache's lengths, which `mask` borrows

  // Where rows of k and v lie: `count` addresses.
  void key_rows(const RowPlace& place, const void** rows) const;
  void value_rows(const RowPlace& place, const void** rows) const;
};

AttendProblem make_problem(const TensorView& q, const TensorView& k, const TensorView& v,
                           const Mask& mask, const AttendOptions& options, const char* function);

// A view that has a shape and a type, and no memory to look at.
TensorView shape_alone(const Shape& shape, DType dtype);

// The same memory with dimensions of 1 in front, up to `rank`.
TensorView with_leading_ones(const TensorView& t, int rank);
MutableTensorView with_leading_ones(const MutableTensorView& t, int rank);
// Without the first `dropped` dimensions, which are 1; an empty tensor stays as it is.
Tensor without_leading_ones(Tensor t, int dropped);

// How many tokens each sequence of a cache has, how many of them the last append brought, and the
// first one that is kept.
struct CacheTokens {
  std::vector<dim_t> lengths, appended, first_kept;
};
// The same after an append of `counts` of new_tokens (empty: all), which are checked.
CacheTokens tokens_after(const KVCache& cache, dim_t new_tokens, const std::vector<dim_t>& counts,
                         const char* function);

// Queries of the tokens that the last append brought, against all that the cache keeps.
AttendProblem make_problem(const TensorView& q, const KVCache& cache, const Mask& mask,
                           const AttendOptions& options, const char* function);

// The same ahead of an append, so that whatever is wrong is said before the cache changes; rows of
// k and v are there once it has.
AttendProblem make_problem(const TensorView& q, const KVCache& cache, const CacheTokens& after,
                           const Mask& mask, const AttendOptions& options, const char* function);

}  // namespace cephalo
