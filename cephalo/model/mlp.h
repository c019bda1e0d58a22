#pragma once

#include "cephalo/core/tensor.h"
#include "cephalo/model/activation.h"

#pragma GCC visibility push(default)
namespace cephalo {

// y = activation(x fcᵀ + fc_bias) projᵀ + proj_bias, for every token by itself.
struct Mlp {
  Mlp(dim_t d_model, dim_t d_mlp, Activation activation, DType dtype);  // zeros

  // The matrices laid out for the GEMM, for calls between two updates.
  struct Packed;  // packed_mlp.h
  Packed pack() const;
  void pack_for_backward(Packed& packed) const;  // adds what the way back needs

  // x: [..., d_model], of the parameters' type -> the same shape
  Tensor operator()(const TensorView& x) const;

  // The caller's rows, all dense. `active` may share memory with `hidden` when there is no way
  // back.
  struct Rows {
    TensorView x;              // [rows, d_model]
    MutableTensorView hidden;  // [rows, d_mlp], before the activation
    MutableTensorView active;  // [rows, d_mlp], after it
    MutableTensorView y;       // [rows, d_model]
  };
  void forward_into(const Packed& packed, const Rows& rows) const;

  struct Gradients {
    MutableTensorView fc_weight, fc_bias, proj_weight, proj_bias;  // added to
  };
  struct BackwardRows {
    TensorView x, hidden, active;  // as the forward pass left them
    TensorView dy;                 // [rows, d_model]
    MutableTensorView dhidden;     // [rows, d_mlp], room to work in
    MutableTensorView dx;          // [rows, d_model], written
  };
  // packed: null, or what was laid out before, with or without matrices for the way back
  void backward(const Packed* packed, const BackwardRows& rows, const Gradients& gradients) const;

  Tensor fc_weight;    // [d_mlp, d_model]
  Tensor fc_bias;      // [d_mlp]
  Tensor proj_weight;  // [d_model, d_mlp]
  Tensor proj_bias;    // [d_model]
  Activation activation;
};

}  // namespace cephalo
#pragma GCC visibility pop
