#pragma once

#include "cephalo/core/tensor.h"
#include "cephalo/kernels/cuda/hopper.h"

namespace cephalo {

// t: [batch, heads, tokens, columns], 16-bit elements
// May the copy engine read and write it where it lies? Addresses and strides are multiples of 16
// bytes and columns are neighbours.
bool fits_tensor_map(const TensorView& t);

// Boxes of `rows` rows of one head. The columns are cut into planes of 64 = 128 bytes, the widest
// that the 128-byte swizzle allows; one copy brings [planes][rows][64]. Rows past the end read as 0
// and are not written. columns: a multiple of 64.
kernels::cuda::TensorMap make_tensor_map(const TensorView& t, int rows);

}  // namespace cephalo
