#pragma once

#include <optional>

#include "cephalo/attention/layer/fused_layer.h"
#include "cephalo/attention/layer/layer_pass.h"
#include "cephalo/attention/layer/parameters.h"
#include "cephalo/attention/layer/rotary.h"

namespace cephalo {

// The gradient that comes in and those that go out; dx and dkv of shape [0] are not wanted.
struct LayerGradients {
  TensorView dy;                  // [batch · tokens, width], dense, the type of all steps
  MutableTensorView dx;           // [batch · tokens, d_in], dense, any floating type: written
  MutableTensorView dkv;          // [batch · kv_tokens, d_kv], likewise
  Parameters::Blocks parameters;  // added to
};

// The six steps backwards, on the engine that the forward pass ran on. packed: null, or what was
// laid out before, with or without matrices for the way back
void run_layer_backward(const Parameters& parameters, const PackedParameters* packed,
                        const LayerPass& pass, const std::optional<Rotary>& rotary,
                        const LayerGradients& gradients);

}  // namespace cephalo
