#pragma once

#include "cephalo/core/tensor.h"

#pragma GCC visibility push(default)
namespace cephalo {

class TorchGenerator;

// A table of learned vectors: row id is the vector of token id, or row t that of position t.
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

// ids: [batch, tokens] or [tokens], int64 or int32 -> int64, dense. An id that is negative or not
// below vocab_size is an error that names the function, the id's position and the vocabulary.
Tensor checked_ids(const char* function, const TensorView& ids, dim_t vocab_size);

// The tables of a model: token: [vocab_size, width]; position: [context_length, width], or of
// shape [0] where there is none. float32 or float64.
struct EmbeddingTables {
  TensorView token;
  TensorView position;
};
struct EmbeddingGradients {
  MutableTensorView token;
  MutableTensorView position;
};

// x = token[id] + position[first + t].
// ids: [batch, tokens], checked   x: [batch · tokens, width], dense, the tables' type
void embed_into(const EmbeddingTables& tables, const TensorView& ids, dim_t first,
                const MutableTensorView& x);

// Row by row, in the order of ids, dx is added to the gradients of the rows that x was made from:
// the same bits for any number of threads.
void embed_backward(const TensorView& ids, const TensorView& dx, const EmbeddingGradients& to);

}  // namespace cephalo
#pragma GCC visibility pop
