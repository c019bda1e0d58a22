#include "cephalo/attention/layer/layer_call.h"

namespace cephalo {
namespace {

// q, k and v of x's rows, as shapes.
struct HeadShapes {
  HeadShapes(const ParameterSizes& sizes, const LayerCall& call, DType steps)
      : kv_tokens(call.kv ? call.kv->dim(1) : call.x.dim(1)),
        q(shape_alone({call.x.dim(0), sizes.num_heads, call.x.dim(1), sizes.head_dim}, steps)),
        k(shape_alone({call.x.dim(0), sizes.num_kv_heads, kv_tokens, sizes.head_dim}, steps)),
        v(shape_alone({call.x.dim(0), sizes.num_kv_heads, kv_tokens, sizes.v_dim}, steps)) {}
  dim_t kv_tokens;
  TensorView q, k, v;
};

}  // namespace

AttendProblem problem_ahead(const ParameterSizes& sizes, const LayerCall& call, DType steps) {
  const HeadShapes heads(sizes, call, steps);
  if (call.cache != nullptr) {
    const CacheTokens after = tokens_after(*call.cache, call.x.dim(1), call.counts, call.name);
    return make_problem(heads.q, *call.cache, after, call.mask, call.options, call.name);
  }
  return make_problem(heads.q, heads.k, heads.v, call.mask, call.options, call.name);
}

std::vector<PlacedRows> places_ahead(const ParameterSizes& sizes, const LayerCall& call,
                                     DType steps) {
  const HeadShapes heads(sizes, call, steps);
  return place_rows(call.spread, heads.q, heads.k, heads.v, call.mask, call.options, call.name);
}

}  // namespace cephalo
