#pragma once

#include "cephalo/core/tensor.h"
#include "cephalo/linear/packed_linear.h"

namespace cephalo {

// Steps 1 and 6 of the six, reversed. The forward was y = x weightᵀ + bias.
struct Projection {
  TensorView x;       // [rows, d_in], dense, any floating type
  TensorView weight;  // [width, d_in]
  TensorView dy;      // [rows, width], dense; float32 or float64, which is also the arithmetic
  const PackedLinear* back = nullptr;  // weightᵀ laid out, where somebody has done that before
};

// Of shape [0]: not wanted.
struct ProjectionGradients {
  MutableTensorView dx;       // [rows, d_in], dense rows, any floating type: written
  MutableTensorView dweight;  // [width, d_in], dense, dy's type: added to
  MutableTensorView dbias;    // [width], dense, dy's type: added to
  Epilogue epilogue = {};     // of the product that is dx; the textbook has none
};

//   dx = dy weight,  dweight += dyᵀ x,  dbias += Σ dy over rows
//
// Every element is one chain over its sum ascending in fixed blocks, whatever the threads. A row of
// dy that is all zeros adds nothing to dweight, even where its x holds NaN: that is how hidden
// tokens come here.
void project_backward(const Projection& forward, const ProjectionGradients& gradients);

// The same with the textbook's product: each sum is one chain in float64, rounded once.
void project_backward_reference(const Projection& forward, const ProjectionGradients& gradients);

}  // namespace cephalo
