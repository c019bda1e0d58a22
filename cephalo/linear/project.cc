#include "cephalo/linear/project.h"

#include "cephalo/core/matmul.h"

namespace cephalo {

Tensor project(const TensorView& x, const TensorView& weight, const TensorView& bias, DType dtype) {
  Tensor out = Tensor::empty({x.dim(0), x.dim(1), weight.dim(0)}, dtype);
  linear_into(x, weight, bias.numel() > 0 ? &bias : nullptr, out);
  return out;
}

}  // namespace cephalo
