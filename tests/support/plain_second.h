#pragma once

#include <vector>

#include "tests/support/plain_backward.h"

namespace cephalo::testing {

// A direction for the inputs of a PlainPass; what is empty stands still.
struct PlainDirection {
  TensorView q, k, v;
  std::vector<double> added = {};  // to the score of each pair: [batch, heads, q, k]
};

// How results and gradients move along it, float64.
struct PlainSecond {
  Tensor tcontext;  // [batch, num_heads, q_tokens, v_dim]
  Tensor tlse;      // [batch, num_heads, q_tokens]; 0 where nothing is visible
  Tensor hq, hk, hv;
  Tensor hbias;  // of a bias that has all axes: [batch, num_heads, q_tokens, kv_tokens]
};

// Attention and its backward pass by definition, every number of which is a long double that knows
// how fast it moves. It shares no code with the engines.
PlainSecond plain_second(const PlainPass& pass, const PlainDirection& along);

}  // namespace cephalo::testing
