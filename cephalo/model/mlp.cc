#include "cephalo/model/mlp.h"

#include "cephalo/core/fail.h"
#include "cephalo/core/views.h"
#include "cephalo/linear/ops.h"
#include "cephalo/model/packed_mlp.h"

namespace cephalo {
namespace {

Gelu form_of(Activation activation) {
  return activation == Activation::gelu_erf ? Gelu::erf : Gelu::tanh;
}

}  // namespace

Mlp::Mlp(dim_t d_model, dim_t d_mlp, Activation activation_, DType dtype)
    : fc_weight(Tensor::zeros({d_mlp, d_model}, dtype)),
      fc_bias(Tensor::zeros({d_mlp}, dtype)),
      proj_weight(Tensor::zeros({d_model, d_mlp}, dtype)),
      proj_bias(Tensor::zeros({d_model}, dtype)),
      activation(activation_) {}

Mlp::Packed Mlp::pack() const {
  const DType steps = fc_weight.dtype();
  return {
      PackedLinear(fc_weight, fc_bias, steps), PackedLinear(proj_weight, proj_bias, steps), {}, {}};
}

void Mlp::pack_for_backward(Packed& packed) const {
  const DType steps = fc_weight.dtype();
  packed.fc_back.emplace(transpose(fc_weight, 0, 1), TensorView(), steps);
  packed.proj_back.emplace(transpose(proj_weight, 0, 1), TensorView(), steps);
}

Tensor Mlp::operator()(const TensorView& x) const {
  const dim_t d_model = fc_weight.dim(1);
  require(x.rank() > 0 && x.dim(-1) == d_model, "Mlp: the last dimension of x {} must be {}",
          x.shape(), d_model);
  require_type(x.dtype() == fc_weight.dtype(), "Mlp: x is {}, the parameters are {}",
               name(x.dtype()), name(fc_weight.dtype()));
  const dim_t count = d_model == 0 ? 0 : x.numel() / d_model;
  const Tensor dense = Tensor::copy(x).reshaped({count, d_model});
  Tensor hidden = Tensor::empty({count, fc_weight.dim(0)}, x.dtype());
  Tensor y = Tensor::empty({count, d_model}, x.dtype());
  forward_into(pack(), {dense, hidden, hidden, y});
  return std::move(y).reshaped(x.shape());
}

void Mlp::forward_into(const Packed& packed, const Rows& rows) const {
  ops::linear(packed.fc, rows.x, rows.hidden, Epilogue::gelu(form_of(activation), rows.active));
  ops::linear(packed.proj, rows.active, rows.y);
}

void Mlp::backward(const Packed* packed, const BackwardRows& rows,
                   const Gradients& gradients) const {
  const bool laid_out = packed != nullptr && packed->fc_back.has_value();
  //   y = active projᵀ + proj_bias   ←  dactive, dproj_weight, dproj_bias
  //   active = activation(hidden)    ←  dhidden, in the same memory
  ops::linear_backward(
      {rows.active, proj_weight, rows.dy, laid_out ? &*packed->proj_back : nullptr},
      {rows.dhidden, gradients.proj_weight, gradients.proj_bias,
       Epilogue::gelu_back(form_of(activation), rows.hidden)});
  //   hidden = x fcᵀ + fc_bias       ←  dx, dfc_weight, dfc_bias
  ops::linear_backward({rows.x, fc_weight, rows.dhidden, laid_out ? &*packed->fc_back : nullptr},
                       {rows.dx, gradients.fc_weight, gradients.fc_bias});
}

}  // namespace cephalo
