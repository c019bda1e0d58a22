#include "cephalo/linear/rotation.h"

#include <cmath>
#include <vector>

#include "cephalo/core/rows.h"

namespace cephalo {
namespace {

template <typename T>
void turn(const Rotation& rotation, const MutableTensorView& heads, dim_t b, dim_t t,
          const double* angles) {
  const dim_t half = rotation.half;
  for (dim_t h = 0; h < heads.dim(1); ++h) {
    T* head = heads.mutable_data_as<T>() + row_offset(heads, b, h, t);
    for (dim_t k = 0; k < half; ++k) {
      T& first = head[rotation.interleaved ? 2 * k : k];
      T& second = head[rotation.interleaved ? 2 * k + 1 : k + half];
      const double x = static_cast<double>(first);
      const double y = static_cast<double>(second);
      first = static_cast<T>(x * angles[2 * k] - y * angles[2 * k + 1]);
      second = static_cast<T>(x * angles[2 * k + 1] + y * angles[2 * k]);
    }
  }
}

}  // namespace

// In float64: a float32 angle is off by 1e-4 at position 2,000.
void fill_angles(const Rotation& rotation, dim_t position, double* to) {
  const auto half = static_cast<double>(rotation.half);
  for (dim_t k = 0; k < rotation.half; ++k) {
    const double angle =
        static_cast<double>(position) * std::pow(rotation.base, -static_cast<double>(k) / half);
    to[2 * k] = std::cos(angle);
    to[2 * k + 1] = rotation.sign * std::sin(angle);
  }
}

void turn_rows(const Rotation& rotation, dim_t begin, dim_t end) {
  const bool known = rotation.angles.numel() > 0;
  const double* table = known ? rotation.angles.data_as<double>() : nullptr;
  std::vector<double> scattered;
  if (!known) scattered.resize(static_cast<std::size_t>(2 * rotation.half));
  for (int p = 0; p < rotation.count; ++p) {
    const auto& [heads, shift] = rotation.parts[p];
    const dim_t tokens = heads.dim(2);
    const auto* shifts = shift.data_as<std::int64_t>();
    for (dim_t row = begin; row < end; ++row) {
      const dim_t b = row / tokens;
      const dim_t position = row % tokens + shifts[b];
      if (!known) fill_angles(rotation, position, scattered.data());
      const double* angles =
          known ? table + 2 * rotation.half * (position - rotation.first) : scattered.data();
      heads.dtype() == DType::f64 ? turn<double>(rotation, heads, b, row % tokens, angles)
                                  : turn<float>(rotation, heads, b, row % tokens, angles);
    }
  }
}

}  // namespace cephalo
