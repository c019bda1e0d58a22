#include "cephalo/model/layer_norm.h"

#include "cephalo/core/fail.h"
#include "cephalo/linear/ops.h"

namespace cephalo {

LayerNorm::LayerNorm(dim_t width, double epsilon_, DType dtype)
    : weight(Tensor::full({width}, 1.0, dtype)),
      bias(Tensor::zeros({width}, dtype)),
      epsilon(epsilon_) {}

Tensor LayerNorm::operator()(const TensorView& x) const {
  require(x.rank() > 0 && x.dim(-1) == width(), "LayerNorm: the last dimension of x {} must be {}",
          x.shape(), width());
  require_type(x.dtype() == weight.dtype(), "LayerNorm: x is {}, the parameters are {}",
               name(x.dtype()), name(weight.dtype()));
  Tensor y = Tensor::copy(x);
  const MutableTensorView rows(y.mutable_view().mutable_data(), y.dtype(),
                               {width() == 0 ? 0 : x.numel() / width(), width()});
  forward_into({rows, {}, rows, {}});
  return y;
}

void LayerNorm::forward_into(const Rows& rows) const {
  ops::norm({.x = rows.x,
             .added = rows.added,
             .weight = weight,
             .bias = bias,
             .epsilon = epsilon,
             .y = rows.y,
             .moments = rows.moments});
}

void LayerNorm::backward(const BackwardRows& rows) const {
  ops::norm_backward({.x = rows.x,
                      .moments = rows.moments,
                      .weight = weight,
                      .dy = rows.dy,
                      .dx = rows.dx,
                      .dweight = rows.dweight,
                      .dbias = rows.dbias});
}

}  // namespace cephalo
