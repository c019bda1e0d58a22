#include "cephalo/embed/embedding.h"

#include <algorithm>

#include "cephalo/core/cpu.h"
#include "cephalo/core/fail.h"
#include "cephalo/core/ops.h"
#include "cephalo/core/parallel.h"
#include "cephalo/kernels/tables.h"

namespace cephalo {
namespace {

template <typename T>
void embed_rows(const EmbeddingTables& tables, const TensorView& ids, dim_t first,
                const MutableTensorView& x) {
  const auto& kernels = kernels::model_kernels<T>(current_isa());
  const dim_t tokens = ids.dim(-1);
  const dim_t width = x.dim(1);
  const auto* id = ids.data_as<std::int64_t>();
  const T* token = tables.token.data_as<T>();
  const bool placed = tables.position.numel() > 0;
  const T* position = placed ? tables.position.data_as<T>() : nullptr;
  T* to = x.mutable_data_as<T>();
  constexpr dim_t kRows = 32;
  const Region region{(x.dim(0) + kRows - 1) / kRows, static_cast<double>(x.numel())};
  parallel_for(region, [&](dim_t piece, std::byte*) {
    const dim_t end = std::min(x.dim(0), (piece + 1) * kRows);
    for (dim_t row = piece * kRows; row < end; ++row) {
      std::copy_n(token + id[row] * width, width, to + row * width);
      if (placed) {
        kernels.add(position + (first + row % tokens) * width, width, to + row * width);
      }
    }
  });
}

template <typename T>
void add_rows(const TensorView& ids, const TensorView& dx, const EmbeddingGradients& to) {
  const auto& kernels = kernels::model_kernels<T>(current_isa());
  const dim_t tokens = ids.dim(-1);
  const dim_t width = dx.dim(1);
  const auto* id = ids.data_as<std::int64_t>();
  const T* from = dx.data_as<T>();
  T* token = to.token.mutable_data_as<T>();
  const bool placed = to.position.numel() > 0;
  T* position = placed ? to.position.mutable_data_as<T>() : nullptr;
  // Each piece has its own columns of the tables, and walks all rows.
  constexpr dim_t kColumns = 64;
  const Region region{(width + kColumns - 1) / kColumns, 2.0 * static_cast<double>(dx.numel())};
  parallel_for(region, [&](dim_t piece, std::byte*) {
    const dim_t begin = piece * kColumns;
    const dim_t count = std::min(kColumns, width - begin);
    for (dim_t row = 0; row < dx.dim(0); ++row) {
      const T* add = from + row * width + begin;
      kernels.add(add, count, token + id[row] * width + begin);
      if (placed) kernels.add(add, count, position + row % tokens * width + begin);
    }
  });
}

}  // namespace

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
  x.dtype() == DType::f64 ? embed_rows<double>(tables, ids, first, x)
                          : embed_rows<float>(tables, ids, first, x);
}

void embed_backward(const TensorView& ids, const TensorView& dx, const EmbeddingGradients& to) {
  dx.dtype() == DType::f64 ? add_rows<double>(ids, dx, to) : add_rows<float>(ids, dx, to);
}

}  // namespace cephalo
