#pragma once

#include "cephalo/core/random.h"
#include "cephalo/core/tensor.h"

namespace cephalo {

// A table of learned vectors: row id stands for token id, or row t for position t.
class Embedding {
 public:
  // N(0, 1) rows, drawn as nn.Embedding(rows, width) draws them.
  Embedding(dim_t rows, dim_t width, TorchGenerator& generator);

  TensorView table() const { return table_; }  // [rows, width]

  // ids: int64 or int32, any shape -> [shape of ids, width]. An id outside the table is an error
  // that names its place.
  Tensor operator()(const TensorView& ids) const;

 private:
  Tensor table_;
};

// Token vector + position vector. ids: [batch, tokens] -> x: [batch, tokens, width]
Tensor embed_tokens(const Embedding& tokens, const Embedding& positions, const TensorView& ids);

}  // namespace cephalo
