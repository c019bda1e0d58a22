#pragma once

#include "cephalo/core/tensor.h"

namespace cephalo {

// Steps 1 and 6 of the six.
// x: [batch, tokens, d_in]   weight: [width, d_in]   bias: [width], or empty for none
// -> x weightᵀ + bias: [batch, tokens, width], elements of `dtype`
Tensor project(const TensorView& x, const TensorView& weight, const TensorView& bias, DType dtype);

}  // namespace cephalo
