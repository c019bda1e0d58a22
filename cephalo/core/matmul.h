#pragma once

#include <cstdint>

#include "cephalo/core/tensor.h"

namespace cephalo {

// Which terms of a row take part: fills keep[0 .. K) for row `row` of matrix `matrix`.
struct RowFilter {
  void (*fill)(const void* context, dim_t matrix, dim_t row, std::uint8_t* keep) = nullptr;
  const void* context = nullptr;
};

// The reference product, on any element types and strides.
// a: [..., M, K]   b: [..., K, N]   out: [..., M, N], leading dimensions equal.
// Every element is one chain over k ascending in float64 (a product of two float32 numbers is
// exact there), rounded once to out's type, 16-bit types included. Terms that the filter leaves out
// are not touched, so a NaN among them cannot spread.
void matmul_into(const TensorView& a, const TensorView& b, const MutableTensorView& out,
                 RowFilter filter = {});

// x: [..., d_in]   weight: [d_out, d_in]   bias: [d_out] or null   out: [..., d_out]
// One chain as above; the bias is added before the one rounding.
void linear_into(const TensorView& x, const TensorView& weight, const TensorView* bias,
                 const MutableTensorView& out);

}  // namespace cephalo
