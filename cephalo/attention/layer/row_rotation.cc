#include "cephalo/attention/layer/row_rotation.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "cephalo/core/parallel.h"
#include "cephalo/mask/bound_mask.h"

namespace cephalo {

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
  first_ = low;
  count_ = high - low + 1 <= 2 * rows + 64 ? high - low + 1 : 0;
  table_.resize(static_cast<std::size_t>(2 * half_ * count_));
  const Region region{.pieces = count_, .flops = 100.0 * static_cast<double>(half_ * count_)};
  parallel_for(region, [&](dim_t row, std::byte*) {
    fill_angles(first_ + row, table_.data() + 2 * half_ * row);
  });
}

void RowRotation::turn_rows(dim_t begin, dim_t end) const {
  std::vector<double> scattered;
  if (count_ == 0) scattered.resize(static_cast<std::size_t>(2 * half_));
  for (const Part& part : parts_) {
    const dim_t tokens = part.heads.dim(2);
    for (dim_t row = begin; row < end; ++row) {
      const dim_t b = row / tokens;
      const dim_t position = row % tokens + part.shift[static_cast<std::size_t>(b)];
      const double* angles = table_.data() + 2 * half_ * (position - first_);
      if (count_ == 0) {
        fill_angles(position, scattered.data());
        angles = scattered.data();
      }
      part.heads.dtype() == DType::f64 ? turn<double>(part, b, row % tokens, angles)
                                       : turn<float>(part, b, row % tokens, angles);
    }
  }
}

void RowRotation::turn_all_rows() const {
  if (parts_.empty()) return;
  constexpr dim_t kRows = 64;
  const dim_t rows = parts_[0].heads.dim(0) * parts_[0].heads.dim(2);
  double numbers = 0.0;
  for (const Part& part : parts_) numbers += static_cast<double>(part.heads.numel());
  const Region region{.pieces = (rows + kRows - 1) / kRows, .flops = 4.0 * numbers};
  parallel_for(region, [&](dim_t piece, std::byte*) {
    turn_rows(piece * kRows, std::min(rows, (piece + 1) * kRows));
  });
}

// cos and sin of all pairs at one position. In float64: a float32 angle is off by 1e-4 at
// position 2,000.
void RowRotation::fill_angles(dim_t position, double* to) const {
  for (dim_t k = 0; k < half_; ++k) {
    const double angle =
        static_cast<double>(position) *
        std::pow(rotary_.base, -static_cast<double>(k) / static_cast<double>(half_));
    to[2 * k] = std::cos(angle);
    to[2 * k + 1] = sign_ * std::sin(angle);
  }
}

template <typename T>
void RowRotation::turn(const Part& part, dim_t b, dim_t t, const double* angles) const {
  const Strides& s = part.heads.strides();
  for (dim_t h = 0; h < part.heads.dim(1); ++h) {
    T* head = part.heads.mutable_data_as<T>() + b * s[0] + h * s[1] + t * s[2];
    for (dim_t k = 0; k < half_; ++k) {
      T& first = head[rotary_.interleaved ? 2 * k : k];
      T& second = head[rotary_.interleaved ? 2 * k + 1 : k + half_];
      const double x = static_cast<double>(first);
      const double y = static_cast<double>(second);
      first = static_cast<T>(x * angles[2 * k] - y * angles[2 * k + 1]);
      second = static_cast<T>(x * angles[2 * k + 1] + y * angles[2 * k]);
    }
  }
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
