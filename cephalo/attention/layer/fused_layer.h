#pragma once

#include <optional>

#include "cephalo/attention/engine/problem.h"
#include "cephalo/attention/kv_cache.h"
#include "cephalo/attention/layer/layer_pass.h"
#include "cephalo/attention/layer/parameters.h"
#include "cephalo/attention/layer/rotary.h"
#include "cephalo/linear/packed_linear.h"

namespace cephalo {

// Parameters laid out for the GEMM: those that a kind of call needs.
struct PackedParameters {
  std::optional<PackedLinear> qkv;  // keys come from x
  std::optional<PackedLinear> q;    // keys come from a second input
  std::optional<PackedLinear> kv;
  std::optional<PackedLinear> out;
};
PackedParameters pack_parameters(const Parameters& parameters, bool cross);

// One call of the layer.
struct LayerCall {
  TensorView x;                  // [batch, tokens, d_in]
  std::optional<TensorView> kv;  // [batch, kv_tokens, d_kv]
  const Mask& mask;
  std::optional<Rotary> rotary;
  AttendOptions options;
  KVCache* cache;             // keys and values are appended to it first
  std::vector<dim_t> counts;  // of x's tokens in each sequence, with a cache; empty: all
  const char* name;           // begins messages
};

// The six steps on the fused engine: q, k and v in one product, heads split and merged by strides
// alone. output: [batch · tokens, d_out], dense rows, any floating type (without an output
// projection it is context_width wide). `pass`, when given, gets q, k, v, context and lse.
void run_fused_layer(const Parameters& parameters, const PackedParameters& packed,
                     const LayerCall& call, const MutableTensorView& output,
                     LayerPass* pass = nullptr);

// Columns [begin, begin + heads · dim) of rows: [batch · tokens, width], as
// [batch, heads, tokens, dim]: split and transposed by strides alone.
MutableTensorView heads_of(const MutableTensorView& rows, dim_t batch, dim_t begin, dim_t heads,
                           dim_t dim);

}  // namespace cephalo
