#pragma once

#include "cephalo/core/tensor.h"

#pragma GCC visibility push(default)
namespace cephalo {

// PyTorch's defaults.
struct SgdOptions {
  double learning_rate = 1e-3;
  double momentum = 0.0;      // how much of the last step's direction is kept
  double weight_decay = 0.0;  // a share of the parameter, added to its gradient
  bool nesterov = false;      // looks one step of momentum ahead
};

// What SGD remembers of one parameter; empty before its first step, and always without momentum.
struct SgdState {
  Tensor direction;  // in the parameter's shape and type
};

// One step of torch.optim.SGD.
// parameter, gradient: one shape, float32 or float64 both, any strides
void sgd_step(const MutableTensorView& parameter, const TensorView& gradient, SgdState& state,
              const SgdOptions& options = {});

}  // namespace cephalo
#pragma GCC visibility pop
