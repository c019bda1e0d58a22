#include "tests/support/bounds.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace cephalo::testing {

double bound_for(double plain_error, double magnitude, DType dtype) {
  const double floor = dtype == DType::bf16  ? 0x1p-8
                       : dtype == DType::f16 ? 0x1p-11
                       : dtype == DType::f32 ? 0x1p-22
                                             : 0x1p-50;
  return 2.0 * plain_error + floor * magnitude;
}

double largest_finite_magnitude(const TensorView& t) {
  double largest = 0.0;
  const Tensor dense = Tensor::copy(t, DType::f64);
  for (dim_t i = 0; i < dense.numel(); ++i) {
    const double value = std::abs(dense.data_as<double>()[i]);
    if (std::isfinite(value)) largest = std::max(largest, value);
  }
  return largest;
}

int rounds(int full) {
  if (const char* times = std::getenv("CEPHALO_ROUNDS")) return full * std::atoi(times);
  return std::getenv("CEPHALO_ISA") != nullptr ? (full + 7) / 8 : full;
}

}  // namespace cephalo::testing
