#pragma once

#include "cephalo/core/tensor.h"
#include "cephalo/core/views.h"  // view transpose permute reshape chunk contiguous

#pragma GCC visibility push(default)
namespace cephalo {

class TorchGenerator;

// The functions attention is written with by hand. Each returns a new tensor of its first
// argument's element type and computes in float64 inside, rounding once.

// a: [..., M, K], b: [..., K, N] -> [..., M, N]; leading dimensions are equal.
Tensor matmul(const TensorView& a, const TensorView& b);

// x: [..., d_in], weight: [d_out, d_in], bias: [d_out] -> x weightᵀ + bias: [..., d_out]
Tensor linear(const TensorView& x, const TensorView& weight);
Tensor linear(const TensorView& x, const TensorView& weight, const TensorView& bias);

// a + b and t · factor, element by element; b broadcasts to a's shape.
Tensor add(const TensorView& a, const TensorView& b);
Tensor multiply(const TensorView& t, double factor);

// t: [..., rows, columns] with everything below the given diagonal set to 0.
Tensor triu(const TensorView& t, dim_t diagonal = 0);

// t where mask is zero, `value` where mask is nonzero; mask broadcasts to t's shape.
Tensor masked_fill(const TensorView& t, const TensorView& mask, double value);

// exp(t - max) / sum over the last axis. A row of nothing but -inf gives zeros, not NaN.
Tensor softmax(const TensorView& t);

// Inverted dropout in PyTorch's order of draws, which is that of t's memory: an element is kept
// with probability 1 - p and then multiplied by 1 / (1 - p). p = 0 draws nothing.
Tensor dropout(const TensorView& t, double p, TorchGenerator& generator);

// The softmax of one row of `count` scores, used by softmax and by the reference engine:
// weights[j] = exp(scores[j] - max) / sum, in float64; returns log(sum exp). An empty row or one of
// nothing but -inf gives zeros and -inf; a NaN or +inf spreads over its row, except to -inf.
double softmax_row(const double* scores, dim_t count, double* weights);

}  // namespace cephalo
#pragma GCC visibility pop
