#pragma once

#include <utility>
#include <vector>

#include "cephalo/core/cpu.h"
#include "cephalo/core/tensor.h"
#include "cephalo/linear/epilogue.h"

namespace cephalo {

// A matrix laid out for the GEMM, once, to be used many times; immutable.
//
// weight: [width, d_in], any strides and floating type; arithmetic is float32, float64 for `steps`
// = float64. Dense rows and dense columns (a transposed view, as the backward pass has) are both
// laid out at full speed.
class PackedLinear {
 public:
  // `memory`: of an older one, to be used again where it is large enough.
  PackedLinear(const TensorView& weight, const TensorView& bias, DType steps, Tensor memory = {});
  Tensor release() && { return std::move(panels_); }

  dim_t width() const { return width_; }
  dim_t d_in() const { return d_in_; }
  const TensorView& panels() const { return panels_; }  // lie where the matrix does
  std::size_t bytes() const { return panels_.bytes() + bias_.bytes(); }

  // Of a weight with dense columns: has it neither NaN nor infinity? Not known (true) of others.
  bool finite() const { return finite_; }

  // x: [rows, d_in], any strides -> out: [rows, width] = x weightᵀ + bias, rows dense, any floating
  // type, and then the epilogue. Every element is one chain over d_in ascending in fixed blocks,
  // whatever the threads.
  void apply(const TensorView& x, const MutableTensorView& out,
             const Epilogue& epilogue = {}) const;

 private:
  template <typename T>
  T* take_panels(dim_t columns);
  template <typename T>
  void pack_rows(const TensorView& weight);
  template <typename T>
  void pack_columns(const TensorView& weight);
  template <typename T>
  void multiply(const TensorView& x, const MutableTensorView& out, const Epilogue& epilogue) const;

  dim_t width_;
  dim_t d_in_;
  DType steps_;
  Isa isa_;        // whose layout this is
  Tensor panels_;  // bytes of [d_in / depth][panel][depth][the panel's columns]
  Tensor bias_;    // [width], or empty
  bool finite_ = true;
};

}  // namespace cephalo
