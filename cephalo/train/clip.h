#pragma once

#include <span>

#include "cephalo/core/tensor.h"

#pragma GCC visibility push(default)
namespace cephalo {

// torch.nn.utils.clip_grad_norm_: the root of the sum of squares over all gradients together; where
// it exceeds max_norm, each is multiplied by max_norm / (norm + 1e-6). Returns the norm before.
// gradients: any shapes and strides, float32 or float64
//
// The sum is float64, in an order that shapes alone decide. A norm that is NaN or infinite leaves
// the gradients as they are, for the caller to see and to leave the step out.
double clip_gradient_norm(std::span<const MutableTensorView> gradients, double max_norm);

}  // namespace cephalo
#pragma GCC visibility pop
