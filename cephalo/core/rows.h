#pragma once

// Inside the library only.
#include <cstddef>

#include "cephalo/core/tensor.h"

namespace cephalo {

// Row (b, h, i) of t: [batch, heads, tokens, dim], or the number there of t: [batch, heads,
// tokens].

// How many elements after t's first it begins.
inline dim_t row_offset(const TensorView& t, dim_t b, dim_t h, dim_t i) {
  const Strides& s = t.strides();
  return b * s[0] + h * s[1] + i * s[2];
}

inline const std::byte* row_address(const TensorView& t, dim_t b, dim_t h, dim_t i) {
  return static_cast<const std::byte*>(t.data()) +
         row_offset(t, b, h, i) * static_cast<dim_t>(item_size(t.dtype()));
}
inline std::byte* row_address(const MutableTensorView& t, dim_t b, dim_t h, dim_t i) {
  return static_cast<std::byte*>(t.mutable_data()) +
         row_offset(t, b, h, i) * static_cast<dim_t>(item_size(t.dtype()));
}

// Where rows [i, i + count) begin: `count` addresses.
inline void row_addresses(const TensorView& t, dim_t b, dim_t h, dim_t i, dim_t count,
                          const void** to) {
  const std::byte* first = row_address(t, b, h, i);
  const dim_t step = t.strides()[2] * static_cast<dim_t>(item_size(t.dtype()));
  for (dim_t k = 0; k < count; ++k) to[k] = first + k * step;
}

}  // namespace cephalo
