#pragma once

#include <cstdint>
#include <vector>

#include "cephalo/effects/change.h"
#include "cephalo/model/gpt.h"

namespace cephalo::testing {

// A model whose parameters are large enough for every part to matter; num_kv_heads < num_heads with
// rotary positions, learned positions otherwise.
GptOptions lively_options(PositionKind positions, DType dtype);
Gpt lively_model(const GptOptions& options);
std::vector<std::int64_t> some_ids(dim_t count, dim_t vocab_size, std::uint64_t seed);

// What changes may take from elsewhere.
struct PlainGiven {
  std::vector<std::int64_t> patch_from = {};
  const Tensor* reference = nullptr;  // [num_layers, d_model]
};

// The textbook in float64, step by step with whole matrices of weights: each change is made where
// its definition says, on all rows of the run. -> logits: [tokens, vocab_size], float64
Tensor plain_logits(const Gpt& model, const std::vector<std::int64_t>& ids, const Changes& changes,
                    const PlainGiven& given = {});

}  // namespace cephalo::testing
