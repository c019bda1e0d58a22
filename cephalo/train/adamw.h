#pragma once

#include <cstdint>

#include "cephalo/core/tensor.h"

#pragma GCC visibility push(default)
namespace cephalo {

// PyTorch's defaults.
struct AdamWOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9;          // how much of the mean gradient a step keeps
  double beta2 = 0.999;        // of the mean square
  double eps = 1e-8;           // added to the root of the mean square
  double weight_decay = 1e-2;  // decoupled: a share of the parameter itself, not of its gradient
};

// What AdamW remembers of one parameter; empty before its first step.
struct AdamWState {
  Tensor mean;         // of the gradient, in the parameter's shape and type
  Tensor mean_square;  // of the gradient's square
  std::int64_t step = 0;
};

// One step of torch.optim.AdamW.
// parameter, gradient: one shape, float32 or float64 both, any strides
void adamw_step(const MutableTensorView& parameter, const TensorView& gradient, AdamWState& state,
                const AdamWOptions& options = {});

}  // namespace cephalo
#pragma GCC visibility pop
