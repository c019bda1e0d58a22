#include "cephalo/core/finite.h"

#include <cmath>

#include "cephalo/core/visit.h"

namespace cephalo {
namespace {

// One axis at a time, innermost last.
template <typename T>
dim_t count_along(const T* values, const TensorView& t, int axis) {
  const dim_t stride = t.strides()[axis];
  const bool innermost = axis + 1 == t.rank();
  dim_t count = 0;
  for (dim_t i = 0; i < t.dim(axis); ++i) {
    if (innermost) {
      count += std::isfinite(load(values[i * stride])) ? 0 : 1;
    } else {
      count += count_along(values + i * stride, t, axis + 1);
    }
  }
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
