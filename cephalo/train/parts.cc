#include "cephalo/train/parts.h"

#include <algorithm>

#include "cephalo/core/fail.h"
#include "cephalo/linear/ops.h"

namespace cephalo {
namespace {

constexpr dim_t kPiece = ops::kSquaresPiece;

dim_t pieces_in(const TensorView& t) {
  return (t.numel() + kPiece - 1) / kPiece;
}

dim_t offset_of(const TensorView& t, const Share& elements) {
  require(t.is_contiguous(), "a tensor {} that is divided must be dense", t.shape());
  return elements.begin * static_cast<dim_t>(item_size(t.dtype()));
}

}  // namespace

dim_t piece_count(const std::vector<GptParameter>& parameters) {
  dim_t count = 0;
  for (const GptParameter& p : parameters) count += pieces_in(p.value);
  return count;
}

std::vector<Part> make_parts(const std::vector<GptParameter>& parameters, int processes) {
  const dim_t all = piece_count(parameters);
  std::vector<Part> parts;
  dim_t first = 0;  // piece of the parameter
  for (std::size_t k = 0; k < parameters.size(); ++k) {
    const dim_t end = first + pieces_in(parameters[k].value);
    for (int r = 0; r < processes; ++r) {
      const Share has = share_of(all, r, processes);
      const Share pieces{std::max(first, has.begin), std::min(end, has.end)};
      if (pieces.count() <= 0) continue;
      const Share elements{(pieces.begin - first) * kPiece,
                           std::min(parameters[k].value.numel(), (pieces.end - first) * kPiece)};
      parts.push_back({k, elements, r, pieces});
    }
    first = end;
  }
  return parts;
}

MutableTensorView elements_of(const MutableTensorView& t, const Share& elements) {
  return {static_cast<std::byte*>(t.mutable_data()) + offset_of(t, elements),
          t.dtype(),
          {elements.count()},
          t.device()};
}

TensorView elements_of(const TensorView& t, const Share& elements) {
  return {static_cast<const std::byte*>(t.data()) + offset_of(t, elements),
          t.dtype(),
          {elements.count()},
          t.device()};
}

}  // namespace cephalo
