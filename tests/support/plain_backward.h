#pragma once

#include <vector>

#include "cephalo/attention/attend.h"
#include "tests/support/mask_spec.h"

namespace cephalo::testing {

// q: [batch, num_heads, q_tokens, head_dim]   k: [batch, num_kv_heads, kv_tokens, head_dim]
// v: [batch, num_kv_heads, kv_tokens, v_dim]   dcontext: [batch, num_heads, q_tokens, v_dim]
// dlse: [batch, num_heads, q_tokens], empty: lse was not used
struct PlainPass {
  TensorView q, k, v, dcontext, dlse;
  const MaskTable& mask;
  double scale;
  double softcap = 0.0;
  double dropout = 0.0;
  bool equal_qk = false;  // all products of a pair are the same number: roundings do not cancel
  std::vector<bool> kept = {};  // of all pairs; needed with dropout
};

// Which weights dropout keeps, pair by pair: the documented stream of docs/numerics.md.
std::vector<bool> kept_pairs(const MaskExtent& extent, const MaskSpec& mask,
                             const AttendOptions& options);

struct PlainGradients {
  Tensor dq, dk, dv;
  Tensor dbias;  // of a bias that has all axes: [batch, num_heads, q_tokens, kv_tokens]
};

// The backward pass as NumPy users write it from the same q, k, v, lse and dcontext: weights =
// exp(scores − lse), stored whole, delta = dcontext · context, and every sum in one precision and
// in order. Like plain_attention a wider T is the truth, and the same T the error of a plain
// implementation. It shares no code with the engines.
template <typename T>
PlainGradients plain_backward(const PlainPass& pass);

// The sizes of all products that a gradient is a sum of, added up: what it would be if none
// cancelled another, and what rounding each of them to a type costs in units of that rounding.
PlainGradients gradient_sizes(const PlainPass& pass);

// What rounding can do to each gradient, to first order, in units of 2⁻²² (of float64: 2⁻⁵⁰). A
// gradient is a sum of products, and each counts with its size: products may cancel, their errors
// do not. Weights are off by more than their own rounding, where plain code can be exact by luck
// (one key: scores − lse is 0): an error of the score or of lse is one of the weight. Sums on the
// way to the score have the height S = scale · Σ |q k| or that of lse and are rounded head_dim
// times, to each side as it comes: √head_dim · (S + |lse|) / 8. dv has this error of the weights;
// dscores have it times what they are, and through delta times what the others of their row are.
PlainGradients gradient_noise(const PlainPass& pass);

// What rounding 1 − tanh² of softcap does to each gradient, in the same units: where little is left
// of it, its error is still that of a number near 1.
PlainGradients softcap_noise(const PlainPass& pass);

// What the rounding of a stored context does to each gradient, in units of that rounding: delta =
// Σ dcontext · context is off by the size of its terms, and gradients of scores by weights · that.
PlainGradients context_noise(const PlainPass& pass);

// pairs: [batch, num_heads, q_tokens, kv_tokens] -> shape, of the same rank: the sum over the axes
// that are 1 there.
template <typename T>
Tensor plain_sum_to(const TensorView& pairs, const Shape& shape);

}  // namespace cephalo::testing
