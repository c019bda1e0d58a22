#include "cephalo/attention/layer/layer_call.h"

namespace cephalo {

AttendProblem problem_ahead(const ParameterSizes& sizes, const LayerCall& call, DType steps) {
  const dim_t batch = call.x.dim(0);
  const dim_t tokens = call.x.dim(1);
  const TensorView q = shape_alone({batch, sizes.num_heads, tokens, sizes.head_dim}, steps);
  if (call.cache != nullptr) {
    const CacheTokens after = tokens_after(*call.cache, tokens, call.counts, call.name);
    return make_problem(q, *call.cache, after, call.mask, call.options, call.name);
  }
  const dim_t kv_tokens = call.kv ? call.kv->dim(1) : tokens;
  const TensorView k = shape_alone({batch, sizes.num_kv_heads, kv_tokens, sizes.head_dim}, steps);
  const TensorView v = shape_alone({batch, sizes.num_kv_heads, kv_tokens, sizes.v_dim}, steps);
  return make_problem(q, k, v, call.mask, call.options, call.name);
}

}  // namespace cephalo
