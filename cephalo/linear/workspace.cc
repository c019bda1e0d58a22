#include "cephalo/linear/workspace.h"

#include <utility>

namespace cephalo {

Workspace& Workspace::of_this_thread() {
  thread_local Workspace workspace;
  return workspace;
}

MutableTensorView Workspace::take(Slot slot, const Shape& shape, DType dtype) {
  Tensor& kept = kept_[slot];
  const dim_t bytes = numel(shape) * static_cast<dim_t>(item_size(dtype));
  if (kept.numel() < bytes) kept = Tensor();  // given back before more is taken
  if (kept.numel() < bytes) kept = Tensor::empty({bytes}, DType::u8);
  return {kept.mutable_view().mutable_data(), dtype, shape};
}

Tensor Workspace::lend(Slot slot) {
  return std::move(kept_[slot]);
}

void Workspace::give_back(Slot slot, Tensor memory) {
  kept_[slot] = std::move(memory);
}

void Workspace::keep_a_little() {
  constexpr dim_t kLittle = dim_t{256} << 20;
  for (Tensor& kept : kept_) {
    if (kept.numel() > kLittle) kept = Tensor();
  }
}

}  // namespace cephalo
