#include "cephalo/core/finite.h"

#include <cmath>
#include <type_traits>

#include "cephalo/core/visit.h"

namespace cephalo {
namespace {

// x - x is 0 for every finite x and NaN for the others: a comparison that is done many at a time.
template <typename T>
dim_t count_in_row(const T* values, dim_t stride, dim_t size) {
  using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
  dim_t finite = 0;
  for (dim_t i = 0; i < size; ++i) {
    const auto x = static_cast<Wide>(load(values[i * stride]));
    finite += x - x == 0 ? 1 : 0;
  }
  return size - finite;
}

// One axis at a time, innermost last.
template <typename T>
dim_t count_along(const T* values, const TensorView& t, int axis) {
  const dim_t stride = t.strides()[axis];
  const dim_t size = t.dim(axis);
  if (axis + 1 == t.rank()) {
    return stride == 1 ? count_in_row(values, 1, size) : count_in_row(values, stride, size);
  }
  dim_t count = 0;
  for (dim_t i = 0; i < size; ++i) count += count_along(values + i * stride, t, axis + 1);
  return count;
}

}  // namespace

dim_t count_not_finite(const TensorView& t) {
  if (!is_floating(t.dtype()) || t.numel() == 0) return 0;
  return visit_dtype(t.dtype(), [&](auto zero) -> dim_t {
    const auto* values = t.data_as<decltype(zero)>();
    if (t.rank() == 0) return std::isfinite(load(*values)) ? 0 : 1;
    return count_along(values, t, 0);
  });
}

}  // namespace cephalo
