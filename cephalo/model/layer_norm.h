#pragma once

#include "cephalo/core/tensor.h"

#pragma GCC visibility push(default)
namespace cephalo {

// Every row to mean 0 and variance 1, then times weight, plus bias.
//   y = (x − mean) / √(variance + epsilon) · weight + bias
struct LayerNorm {
  LayerNorm(dim_t width, double epsilon, DType dtype);  // weight 1, bias 0; float32 or float64

  // x: [..., width], of the parameters' type -> the same shape
  Tensor operator()(const TensorView& x) const;

  // The caller's rows, all dense.
  struct Rows {
    MutableTensorView x;        // [rows, width]
    TensorView added;           // [rows, width], added to x first; of shape [0]: nothing is
    MutableTensorView y;        // [rows, width]
    MutableTensorView moments;  // [rows, 2]: mean and 1 / √(variance + epsilon), for backward;
                                // of shape [0]: not wanted
  };
  void forward_into(const Rows& rows) const;

  // dx: [rows, width] += the gradient of x; dweight, dbias: [width], added to as well, in an order
  // that sizes alone decide.
  struct BackwardRows {
    TensorView x;        // [rows, width], as the norm saw it
    TensorView moments;  // [rows, 2]
    TensorView dy;       // [rows, width]
    MutableTensorView dx;
    MutableTensorView dweight;
    MutableTensorView dbias;
  };
  void backward(const BackwardRows& rows) const;

  struct Gradients {
    MutableTensorView weight, bias;  // added to
  };

  dim_t width() const { return weight.dim(0); }

  Tensor weight;  // [width]
  Tensor bias;    // [width]
  double epsilon;
};

}  // namespace cephalo
#pragma GCC visibility pop
