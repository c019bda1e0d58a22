#pragma once

#include <cstdint>
#include <vector>

#include "cephalo/model/model_steps.h"

namespace cephalo::page {

// What a layer keeps of a text.
struct LayerRows {
  Tensor resid_pre;  // [tokens, d_model]
  Tensor normed;     // [tokens, d_model]: what attention gets
  Tensor qkv;        // [tokens, qkv width], q and k rotated
  Tensor lse;        // [1, num_heads, tokens]
};

// One text's way through a model.
struct TextPass {
  std::vector<std::int64_t> ids;
  std::vector<LayerRows> layers;
  Tensor x, added;  // [tokens, d_model]: the residual stream, and what the last layer adds to it
  Tensor normed;    // [tokens, d_model]: after the last norm
  Tensor logits;    // [1, vocab_size]: of the last token
  dim_t tokens() const { return static_cast<dim_t>(ids.size()); }
  StepRows rows() const { return {1, tokens(), 0}; }
};

}  // namespace cephalo::page
