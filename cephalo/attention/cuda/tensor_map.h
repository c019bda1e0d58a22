#pragma once

#include "cephalo/core/tensor.h"
#include "cephalo/kernels/cuda/hopper.h"

namespace cephalo {

// t: [batch, heads, tokens, columns], 16-bit elements
// May the copy engine read and write it where it lies? Addresses and strides are multiples of 16
// bytes, columns are neighbours, and there are whole planes of 64, or less than one.
bool fits_tensor_map(const TensorView& t);

// Boxes of `rows` rows of one head. The columns are cut into planes of 64 = 128 bytes, the widest
// that the 128-byte swizzle allows; one copy brings [width/64][rows][64]. Rows and columns past the
// end read as 0 and are not written.
struct BoxSize {
  int rows, width;
};
kernels::cuda::TensorMap make_tensor_map(const TensorView& t, const BoxSize& box);

// A bias [batch | 1, num_heads | 1, q_tokens, kv_tokens] of 16 bits, in boxes of 64 queries
// and keys; by_batch and by_head as its sizes say. Keys past the end read as 0.
bool fits_bias_map(const TensorView& bias);
kernels::cuda::BiasMap make_bias_map(const TensorView& bias);

}  // namespace cephalo
