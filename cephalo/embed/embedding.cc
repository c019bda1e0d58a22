#include "cephalo/embed/embedding.h"

#include "cephalo/core/fail.h"
#include "cephalo/core/ops.h"

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

}  // namespace cephalo
