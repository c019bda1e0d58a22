#pragma once

#include "cephalo/model/gpt.h"

namespace cephalo::testing {

// A model whose every parameter a test can go through.
inline GptOptions tiny_options() {
  return {.vocab_size = 11,
          .context_length = 9,
          .d_model = 8,
          .num_heads = 2,
          .num_layers = 2,
          .d_mlp = 12,
          .seed = 3};
}

}  // namespace cephalo::testing
