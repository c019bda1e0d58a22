#include "cephalo/attention/layer/row_rotation.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "cephalo/core/parallel.h"

namespace cephalo {

RowRotation::RowRotation(const Rotary& rotary, dim_t head_dim, Direction direction) {
  plain_.base = rotary.base;
  plain_.interleaved = rotary.interleaved;
  plain_.half = head_dim / 2;
  plain_.sign = direction == Direction::forward ? 1.0 : -1.0;
}

void RowRotation::add(Part part) {
  parts_.push_back(std::move(part));
}

void RowRotation::build_table() {
  if (parts_.empty() || parts_[0].heads.numel() == 0) return;
  dim_t low = parts_[0].shift[0];
  dim_t high = low;
  for (const Part& part : parts_) {
    for (const dim_t shift : part.shift) {
      low = std::min(low, shift);
      high = std::max(high, shift + part.heads.dim(2) - 1);
    }
  }
  const dim_t rows = parts_[0].heads.dim(0) * parts_[0].heads.dim(2);
  const dim_t count = high - low + 1;
  if (count > 2 * rows + 64) return;
  plain_.first = low;
  table_ = Tensor::empty({count, plain_.half, 2}, DType::f64);
  auto* angles = table_.mutable_data_as<double>();
  const Region region{.pieces = count, .flops = 100.0 * static_cast<double>(plain_.half * count)};
  parallel_for(region, [&](dim_t row, std::byte*) {
    fill_angles(plain_, low + row, angles + 2 * plain_.half * row);
  });
}

Rotation RowRotation::rotation() const {
  Rotation rotation = plain_;
  rotation.angles = table_;
  for (const Part& part : parts_) {
    rotation.parts[rotation.count++] = {part.heads,
                                        TensorView(part.shift.data(), {std::ssize(part.shift)})};
  }
  return rotation;
}

std::vector<dim_t> query_shifts(const BoundMask& mask) {
  std::vector<dim_t> shifts;
  for (dim_t b = 0; b < mask.extent().batch; ++b) shifts.push_back(mask.position(b, 0));
  return shifts;
}

std::vector<dim_t> key_shifts(const BoundMask& mask) {
  return std::vector<dim_t>(static_cast<std::size_t>(mask.extent().batch), mask.key_position(0));
}

}  // namespace cephalo
