#include "cephalo/io/stored_bytes.h"

#include <algorithm>

namespace cephalo {

std::optional<dim_t> stored_bytes(const Shape& shape, DType dtype) {
  auto bytes = static_cast<dim_t>(item_size(dtype));
  for (const dim_t dim : shape) {
    if (__builtin_mul_overflow(bytes, std::max<dim_t>(dim, 1), &bytes)) return std::nullopt;
  }
  return std::find(shape.begin(), shape.end(), 0) == shape.end() ? bytes : 0;
}

}  // namespace cephalo
