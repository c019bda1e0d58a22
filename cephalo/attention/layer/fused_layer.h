#pragma once

#include <optional>

#include "cephalo/attention/engine/engine.h"
#include "cephalo/attention/layer/layer_call.h"
#include "cephalo/attention/layer/layer_pass.h"
#include "cephalo/attention/layer/parameters.h"
#include "cephalo/linear/packed_linear.h"

namespace cephalo {

// Parameters laid out for the GEMM: those that a kind of call needs.
struct PackedParameters {
  std::optional<PackedLinear> qkv;  // keys come from x
  std::optional<PackedLinear> q;    // keys come from a second input
  std::optional<PackedLinear> kv;
  std::optional<PackedLinear> out;
  std::optional<PackedLinear> qkv_back;  // transposed, for the way back
  std::optional<PackedLinear> out_back;
};
PackedParameters pack_parameters(const Parameters& parameters, bool cross);
// Adds what the way back of a call without a second input needs.
void pack_for_backward(const Parameters& parameters, PackedParameters& packed);

// What a call runs on.
struct FusedLayerRun {
  const Parameters& parameters;
  const PackedParameters& packed;  // for this kind of call
  const LayerCall& call;
  const EngineEntry* engine;  // attends; null where tokens are spread: the ring asks for its own
};

// The six steps with q, k and v in one product, heads split and merged by strides alone, on any
// engine that attends into memory of the caller's. `problem` is the call's, ahead; none where
// tokens are spread. output: [batch · tokens, d_out], dense rows, any floating type (without an
// output projection it is context_width wide). `pass`, when given, gets q, k, v, context and lse.
void run_fused_layer(const FusedLayerRun& run, std::optional<AttendProblem> problem,
                     const MutableTensorView& output, LayerPass* pass = nullptr);

// Columns [begin, begin + heads · dim) of rows: [batch · tokens, width], as
// [batch, heads, tokens, dim]: split and transposed by strides alone.
MutableTensorView heads_of(const MutableTensorView& rows, dim_t batch, dim_t begin, dim_t heads,
                           dim_t dim);

}  // namespace cephalo
