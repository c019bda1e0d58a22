#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "cephalo/attention/attend.h"
#include "cephalo/attention/layer/placed_rows.h"
#include "cephalo/core/random.h"

namespace cephalo {

// What one forward pass of the layer leaves for its backward pass: inputs and results of the steps,
// never anything that grows with q_tokens × kv_tokens.
struct LayerPass {
  std::uint64_t layer = 0;    // which layer made it
  std::uint64_t version = 0;  // of that layer's parameters

  Shape x_shape;               // as the caller had it, rank 2 or 3
  Shape kv_shape;              // empty without a second input
  TensorView x;                // [batch · tokens, d_in], dense
  TensorView kv;               // [batch · kv_tokens, d_kv], dense
  std::array<Tensor, 2> kept;  // copies of x and kv, where they were not borrowed

  // After rotary. With the fused engine they are columns of one matrix.
  TensorView q;                  // [batch, num_heads, tokens, head_dim]
  TensorView k;                  // [batch, num_kv_heads, kv_tokens, head_dim]
  TensorView v;                  // [batch, num_kv_heads, kv_tokens, v_dim]
  TensorView context;            // [batch · tokens, num_heads · v_dim], dense
  Tensor lse;                    // [batch, num_heads, tokens]
  std::array<Tensor, 4> memory;  // what q, k, v and context look at

  bool textbook = false;  // the layer went step by step, and goes back so
  Mask mask;              // owns its tensors, unless inputs were borrowed
  AttendOptions options;
  Spread spread;
  std::vector<PlacedRows> placed;                   // where tokens are spread
  std::unique_ptr<const TorchGenerator> generator;  // where it stood before dropout drew from it
};

}  // namespace cephalo
