#include "cephalo/attention/layer/heads.h"

#include <utility>

#include "cephalo/core/views.h"

namespace cephalo {

TensorView split_heads(const TensorView& projected, dim_t num_heads) {
  const dim_t dim = projected.dim(2) / num_heads;
  return view(projected, {projected.dim(0), projected.dim(1), num_heads, dim});
}

TensorView heads_first(const TensorView& split) {
  return transpose(split, 1, 2);
}

Tensor merge_heads(Tensor context) {
  const Shape merged{context.dim(0), context.dim(2), context.dim(1) * context.dim(3)};
  const TensorView tokens_first = transpose(context, 1, 2);
  if (tokens_first.is_contiguous()) return std::move(context).reshaped(merged);
  return Tensor::copy(tokens_first).reshaped(merged);
}

}  // namespace cephalo
