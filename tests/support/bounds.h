#pragma once

#include "cephalo/core/tensor.h"

namespace cephalo::testing {

// The bound of docs/numerics.md: twice the error of a plain implementation in the same precision,
// plus a floor for where plain is exact by luck.
double bound_for(double plain_error, double magnitude, DType dtype);

// max |value| of those that are finite.
double largest_finite_magnitude(const TensorView& t);

// How often to repeat: `full` times, an eighth of it when CEPHALO_ISA forces one instruction set of
// several, and $CEPHALO_ROUNDS times as often where that is set.
int rounds(int full);

}  // namespace cephalo::testing
