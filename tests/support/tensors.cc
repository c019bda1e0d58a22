#include "tests/support/tensors.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>

#include "cephalo/core/random.h"

namespace cephalo::testing {

Tensor normal(const Shape& shape, std::uint64_t seed, DType dtype) {
  return Tensor::copy(TorchGenerator(seed).randn(shape), dtype);
}

void report(const std::string& line) {
  std::printf("%s\n", line.c_str());
  if (const char* path = std::getenv("CEPHALO_REPORT"))
    std::ofstream(path, std::ios::app) << line << "\n";
}

bool same_bits(const TensorView& a, const TensorView& b) {
  if (a.dtype() != b.dtype() || !(a.shape() == b.shape())) return false;
  const Tensor x = Tensor::copy(a);
  const Tensor y = Tensor::copy(b);
  return std::memcmp(x.data(), y.data(), x.bytes()) == 0;
}

double largest_difference(const TensorView& a, const TensorView& b) {
  if (!(a.shape() == b.shape())) return std::numeric_limits<double>::infinity();
  const Tensor x = Tensor::copy(a, DType::f64);
  const Tensor y = Tensor::copy(b, DType::f64);
  double largest = 0.0;
  for (dim_t i = 0; i < x.numel(); ++i) {
    const double p = x.data_as<double>()[i];
    const double q = y.data_as<double>()[i];
    if (p == q) continue;  // infinities too
    const double difference = std::abs(p - q);
    if (std::isnan(difference)) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, difference);
  }
  return largest;
}

double largest_magnitude(const TensorView& t) {
  const Tensor x = Tensor::copy(t, DType::f64);
  double largest = 0.0;
  for (dim_t i = 0; i < x.numel(); ++i) {
    largest = std::max(largest, std::abs(x.data_as<double>()[i]));
  }
  return largest;
}

bool all_finite(const TensorView& t) {
  const Tensor x = Tensor::copy(t, DType::f64);
  return std::all_of(x.data_as<double>(), x.data_as<double>() + x.numel(),
                     [](double value) { return std::isfinite(value); });
}

bool all_zero(const TensorView& t) {
  return largest_magnitude(t) == 0.0 && all_finite(t);
}

}  // namespace cephalo::testing
