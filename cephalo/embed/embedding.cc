#include "cephalo/embed/embedding.h"

#include "cephalo/core/fail.h"
#include "cephalo/core/ops.h"
#include "cephalo/core/random.h"
#include "cephalo/linear/ops.h"

namespace cephalo {

Embedding::Embedding(dim_t rows, dim_t width, TorchGenerator& generator)
    : table_(generator.randn({rows, width})) {}

Tensor Embedding::operator()(const TensorView& ids) const {
  require_type(ids.dtype() == DType::i64 || ids.dtype() == DType::i32,
               "embedding: ids are {}, int32 or int64 is needed", name(ids.dtype()));
  const Tensor flat = Tensor::copy(ids, DType::i64);
  const auto* id = flat.data_as<std::int64_t>();
  Shape shape = ids.shape();
  shape.push_back(table_.dim(1));
  Tensor out = Tensor::empty(shape);
  const MutableTensorView rows(out.mutable_view().mutable_data(), DType::f32,
                               {ids.numel(), table_.dim(1)});
  for (dim_t i = 0; i < ids.numel(); ++i) {
    require(id[i] >= 0 && id[i] < table_.dim(0),
            "embedding: id {} at position {} is outside the table of {} rows", id[i], i,
            table_.dim(0));
    rows[i].copy_from(table_[id[i]]);
  }
  return out;
}

Tensor embed_tokens(const Embedding& tokens, const Embedding& positions, const TensorView& ids) {
  const dim_t count = ids.dim(-1);
  require(count <= positions.table().dim(0), "embedding: tokens ({}) exceed context_length ({})",
          count, positions.table().dim(0));
  return add(tokens(ids), positions.table().slice(0, 0, count));
}

Tensor checked_ids(const char* function, const TensorView& ids, dim_t vocab_size) {
  require_type(ids.dtype() == DType::i64 || ids.dtype() == DType::i32,
               "{}: ids are {}, int32 or int64 is needed", function, name(ids.dtype()));
  require(ids.rank() == 1 || ids.rank() == 2, "{}: ids {} must be [batch, tokens] or [tokens]",
          function, ids.shape());
  Tensor dense = Tensor::copy(ids, DType::i64);
  const auto* id = dense.data_as<std::int64_t>();
  const dim_t tokens = ids.dim(-1);
  for (dim_t i = 0; i < ids.numel(); ++i) {
    if (id[i] >= 0 && id[i] < vocab_size) continue;
    const std::string sequence =
        ids.rank() == 2 ? format_text(" of sequence {}", i / tokens) : std::string();
    fail(Error::Kind::value, "{}: id {} at position {}{} is outside the vocabulary of {}", function,
         id[i], i % tokens, sequence, vocab_size);
  }
  return dense;
}

void embed_into(const EmbeddingTables& tables, const TensorView& ids, dim_t first,
                const MutableTensorView& x) {
  ops::embed({tables.token, tables.position, ids, first, x});
}

void embed_backward(const TensorView& ids, const TensorView& dx, const EmbeddingGradients& to) {
  ops::embed_backward({ids, dx, to.token, to.position});
}

}  // namespace cephalo
