#pragma once

#include "tests/kernels/kernel_test.h"

namespace cephalo::kernels::testing {

// The parts of a mask that a tile has.
struct MaskParts {
  bool bits = false;
  bool bias = false;
  bool alibi = false;
  bool softcap = false;
  bool dropout = false;

  bool any() const { return bits || bias || alibi || softcap || dropout; }
};

// No part, each alone, all together.
inline constexpr MaskParts kMaskCases[] = {
    {},
    {.bits = true},
    {.bias = true},
    {.alibi = true},
    {.softcap = true},
    {.dropout = true},
    {.bits = true, .dropout = true},
    {.bits = true, .bias = true, .alibi = true, .softcap = true, .dropout = true},
};

// A number and how far a kernel's may be from it.
struct Estimate {
  double value;
  double error;
};

// How far exp2 and tanh may be off (functions_test.cc holds them to it).
template <typename T>
inline constexpr double kExp2Error = sizeof(T) == 4 ? 1.9e-7 : 5e-16;
template <typename T>
inline constexpr double kTanhError = sizeof(T) == 4 ? 3e-7 : 5e-16;

constexpr double kLog2E = 1.4426950408889634;

// A sum of products as a kernel has it, in float64, with what its roundings may add up to.
class Dot {
 public:
  void add(double a, double b) {
    sum_ += a * b;
    magnitude_ += std::abs(a * b);
    ++terms_;
  }
  double value() const { return sum_; }
  double magnitude() const { return magnitude_; }
  template <typename T>
  Estimate as() const {
    constexpr double kEpsilon = std::numeric_limits<T>::epsilon();
    return {sum_, magnitude_ * kEpsilon * 0.5 * static_cast<double>(terms_ + 2)};
  }

 private:
  double sum_ = 0.0;
  double magnitude_ = 0.0;
  int terms_ = 0;
};

// A mask over `rows` rows (filled up to whole strips) and `width` lanes.
template <typename T>
class MaskedTile {
 public:
  MaskedTile(const MaskParts& parts, dim_t rows, dim_t width, Numbers& numbers)
      : parts_(parts),
        rows_(rows),
        width_(width),
        visible_(padded()),
        kept_(padded()),
        bias_(padded() * width, numbers, -3.0, 3.0) {
    for (dim_t r = 0; r < padded(); ++r) {
      // Rows that nobody may look at, and rows open to all, among others.
      const dim_t kind = numbers.integer(0, 6);
      visible_[r] = kind == 0 ? 0 : (kind == 1 ? ~std::uint64_t{0} : numbers.bits());
      visible_[r] &= (std::uint64_t{1} << width) - 1;  // there are no lanes beyond the tile
      if (r >= rows) visible_[r] = 0;
      kept_[r] = numbers.bits();
    }
    visible_[0] |= 1;  // one pair at least
    distance_ = static_cast<T>(numbers.integer(-4, 8));
  }

  // Null where nothing applies.
  const TileMask<T>* mask() {
    mask_ = {};
    if (parts_.bits) mask_.visible = visible_.data();
    if (parts_.bias) mask_.bias = bias_.data();
    if (parts_.dropout) mask_.kept = kept_.data();
    mask_.slope = parts_.alibi ? T(0.3) : T(0);
    mask_.slope_low = parts_.alibi ? T(1e-9) : T(0);
    mask_.distance = distance_;
    mask_.softcap = parts_.softcap ? T(5) : T(0);
    mask_.grown = T(1.25);
    return parts_.any() ? &mask_ : nullptr;
  }

  dim_t rows() const { return rows_; }
  bool has_bits() const { return parts_.bits; }
  bool sees(dim_t row, dim_t lane) const {
    return !parts_.bits || (visible_[row] >> lane & 1) != 0;
  }
  void hide(dim_t row, dim_t lane) { visible_[row] &= ~(std::uint64_t{1} << lane); }
  double share_kept(dim_t row, dim_t lane) const {  // what dropout multiplies a weight by
    return !parts_.dropout ? 1.0 : ((kept_[row] >> lane & 1) != 0 ? 1.25 : 0.0);
  }
  bool has_softcap() const { return parts_.softcap; }

  // The score, base 2, of q · k; `steps`: from the row to the lane.
  Estimate score(const Dot& dot, dim_t row, dim_t lane, dim_t steps) const {
    constexpr double kEpsilon = std::numeric_limits<T>::epsilon();
    Estimate score = dot.as<T>();
    if (parts_.softcap) {
      score.value = 5.0 * std::tanh(score.value / 5.0);
      score.error += std::abs(score.value) * (kTanhError<T> + 2 * kEpsilon);
    }
    double terms = 0.0;
    if (parts_.bias) terms += kLog2E * double{bias_[row * width_ + lane]};
    double alibi = 0.0;
    if (parts_.alibi) {
      alibi = (double{T(0.3)} + 1e-9) * std::abs(double{distance_} + static_cast<double>(steps));
    }
    score.value += terms - alibi;
    score.error += 4 * kEpsilon * (std::abs(terms) + alibi + std::abs(score.value));
    return score;
  }

 private:
  dim_t padded() const { return round_up(rows_, 8); }  // 8: the most that a strip has

  MaskParts parts_;
  dim_t rows_, width_;
  Guarded<std::uint64_t> visible_, kept_;
  Guarded<T> bias_;
  T distance_;
  TileMask<T> mask_;
};

// [count / group][dim][group] of rows(r, k), zeros at the end: the layout `broadcast`.
template <typename T, typename At>
Guarded<T> broadcast_layout(dim_t count, dim_t dim, dim_t group, const At& at) {
  Guarded<T> packed(round_up(count, group) * dim);
  for (dim_t r = 0; r < round_up(count, group); ++r) {
    for (dim_t k = 0; k < dim; ++k) {
      packed[(r / group * dim + k) * group + r % group] = r < count ? at(r, k) : T(0);
    }
  }
  return packed;
}

}  // namespace cephalo::kernels::testing
