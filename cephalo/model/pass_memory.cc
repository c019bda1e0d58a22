#include "cephalo/model/pass_memory.h"

namespace cephalo {

MutableTensorView PassMemory::take(const Shape& shape, DType dtype) {
  if (next_ == kept_.size()) kept_.emplace_back();
  Tensor& kept = kept_[next_++];
  const dim_t bytes = checked_mul(numel(shape), static_cast<dim_t>(item_size(dtype)));
  if (kept.numel() < bytes) {
    kept = Tensor();  // given back before more is taken
    kept = Tensor::empty({bytes}, DType::u8);
  }
  return {kept.mutable_view().mutable_data(), dtype, shape};
}

std::size_t PassMemory::bytes() const {
  std::size_t total = 0;
  for (const Tensor& t : kept_) total += t.bytes();
  for (const SavedPass& pass : saved_) total += pass.bytes();
  return total;
}

void PassMemory::clear() {
  *this = PassMemory();
}

}  // namespace cephalo
