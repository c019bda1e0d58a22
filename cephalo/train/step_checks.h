#pragma once

#include "cephalo/core/tensor.h"

namespace cephalo {

// What every optimiser asks of a parameter and its gradient.
void check_step(const char* function, const TensorView& parameter, const TensorView& gradient);
// A running mean of an earlier step: the shape and type of its parameter.
void check_state(const char* function, const TensorView& parameter, const TensorView& state);

}  // namespace cephalo
