#pragma once

#include <vector>

#include "cephalo/attention/rotary.h"
#include "cephalo/core/bound_mask.h"
#include "cephalo/core/cpu.h"
#include "cephalo/core/tensor.h"

namespace cephalo {

// A matrix laid out for the GEMM, once, to be used many times; immutable.
//
// weight: [width, d_in], any strides and floating type (a transposed view serves the backward
// pass); arithmetic is float32, float64 for `steps` = float64.
class PackedLinear {
 public:
  PackedLinear(const TensorView& weight, const TensorView& bias, DType steps);

  dim_t width() const { return width_; }
  dim_t d_in() const { return d_in_; }
  std::size_t bytes() const { return panels_.bytes() + bias_.bytes(); }

  // x: [rows, d_in], any strides -> out: [rows, width] = x weightᵀ + bias, rows dense, any floating
  // type. Every element is one chain over d_in ascending in fixed blocks, whatever the threads.
  // `finish(row_begin, row_end)`, when given, is called for rows that are complete, while they are
  // still in the cache.
  using Finish = void (*)(const void* context, dim_t row_begin, dim_t row_end);
  void apply(const TensorView& x, const MutableTensorView& out, Finish finish = nullptr,
             const void* context = nullptr) const;

 private:
  template <typename T>
  void pack(const TensorView& weight);
  template <typename T>
  void multiply(const TensorView& x, const MutableTensorView& out, Finish finish,
                const void* context) const;

  dim_t width_;
  dim_t d_in_;
  DType steps_;
  Isa isa_;        // whose layout this is
  Tensor panels_;  // [d_in / depth][width / columns][depth][columns]
  Tensor bias_;    // [width], or empty
};

}  // namespace cephalo
