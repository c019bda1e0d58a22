#pragma once

#include <cstdint>

#include "cephalo/effects/kept_pass.h"

#pragma GCC visibility push(default)
namespace cephalo {

// What each part of a model adds to the logit of `token` at `position` directly, the last norm's
// scale being that of the run: (c − mean c) / σ ∘ γ · W_U[token]. Parts are summed in float64; they
// add up to the logit within 1e-5 · max(1, |logit|), of a float64 model within 1e-10.
struct Attribution {
  dim_t position = 0;
  std::int64_t token = 0;
  double logit = 0.0;  // the model's own
  double token_embedding = 0.0;
  double position_embedding = 0.0;  // 0 with rotary
  Tensor heads;                     // [num_layers, num_heads], float64
  Tensor out_bias;                  // [num_layers], float64: of the output projection
  Tensor mlp;                       // [num_layers], float64
  double bias = 0.0;                // of the last norm, through the head
  double sum() const;
};
// position: −1 is the last token
Attribution attribute_logit(const KeptPass& text, dim_t position, std::int64_t token);

// A head's part by source: weight · (v_j W_out) through the same map: [position + 1], float64; it
// adds up to heads[layer][head].
Tensor attribute_sources(const KeptPass& text, dim_t layer, dim_t head, dim_t position,
                         std::int64_t token);

}  // namespace cephalo
#pragma GCC visibility pop
