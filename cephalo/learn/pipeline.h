#pragma once

#include <string>
#include <vector>

#include "cephalo/attention/layer/multi_head.h"
#include "cephalo/attention/reference/trace.h"
#include "cephalo/core/tensor.h"
#include "cephalo/model/presets.h"

#pragma GCC visibility push(default)
namespace cephalo {

class TorchGenerator;

// A text on its way to attention.
struct EmbeddedText {
  std::vector<std::string> tokens;  // its words and punctuation
  Tensor ids;                       // [1, tokens], int64: places among the text's sorted words
  Tensor token_embeddings;          // [1, tokens, width]
  Tensor position_embeddings;       // [tokens, width]
  Tensor x;                         // [1, tokens, width], the sum of both
};

// Embeddings are drawn as nn.Embedding(vocabulary, width) and nn.Embedding(context_length, width)
// draw them, one after the other. A text without words, or with more than context_length, is an
// error.
EmbeddedText embed_text(const std::string& text, dim_t width, dim_t context_length,
                        TorchGenerator& generator);

// Puts the steps before attention in front of those of a layer that was traced on embedded.x:
// ids, token_embeddings, position_embeddings.
void prepend_embedding(const EmbeddedText& embedded, Trace& trace);

// The layer and the seed of rung 8.
struct PipelineOptions {
  MultiHeadAttentionOptions layer = preset("gpt2-small");  // its seed and generator are not used
  std::uint64_t seed = 123;  // of embeddings and layer, in that order, as torch.manual_seed
};

// Rung 8: text → tokens → token + position embeddings → rung 5 → context vectors.
struct Pipeline {
  EmbeddedText embedded;
  MultiHeadAttention layer;  // in eval mode
  Tensor context;            // [1, tokens, d_out]

  Trace trace() const;  // every step from ids to context vectors
};
Pipeline pipeline(const std::string& text, const PipelineOptions& options = {});

}  // namespace cephalo
#pragma GCC visibility pop
