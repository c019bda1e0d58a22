#pragma once

#include <vector>

#include "cephalo/core/tensor.h"

namespace cephalo::testing {

// Attention of one head as the rule for biases defines it, forward and back: scores = q kᵀ + bias,
// rounded to T; from there on everything in float64, softmax first. It shares no code with the
// engines.
//
// q: [q_tokens, head_dim]   k: [kv_tokens, head_dim]   v: [kv_tokens, v_dim]
// bias: [q_tokens, kv_tokens]   dcontext: [q_tokens, v_dim]   dlse: [q_tokens]
struct RoundedAttention {
  Tensor weights;  // [q_tokens, kv_tokens], all of them float64
  Tensor context;
  Tensor lse;
  Tensor dq, dk, dv;
  Tensor dbias;  // [q_tokens, kv_tokens]
};

struct RoundedPass {
  TensorView q, k, v, bias, dcontext, dlse;
};

template <typename T>
RoundedAttention rounded_attention(const RoundedPass& pass);

}  // namespace cephalo::testing
