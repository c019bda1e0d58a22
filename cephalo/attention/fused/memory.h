#pragma once

#include <cstddef>

#include "cephalo/core/tensor.h"
#include "cephalo/kernels/sizes.h"

namespace cephalo {

inline constexpr dim_t kLine = 64;  // bytes of a cache line

// Rows of packed values would otherwise lie 4 KiB apart and fall into the same lines of the cache.
inline constexpr dim_t kValuePadding = 16;

// Divides memory into arrays, each on a line of its own; without memory it only measures.
class Arena {
 public:
  explicit Arena(std::byte* memory) : memory_(memory) {}
  template <typename U>
  U* take(dim_t count) {
    std::byte* array = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ += round_up(count * static_cast<dim_t>(sizeof(U)), kLine);
    return reinterpret_cast<U*>(array);
  }
  std::size_t used() const { return static_cast<std::size_t>(used_); }

 private:
  std::byte* memory_;
  dim_t used_ = 0;
};

// Bytes that divide(arena) takes.
template <typename Divide>
std::size_t bytes_taken(const Divide& divide) {
  Arena measuring(nullptr);
  divide(measuring);
  return measuring.used();
}

// Asks for memory that will be needed soon: it comes while arithmetic goes on.
inline void prefetch_to_read(const std::byte* row, dim_t bytes) {
  for (dim_t at = 0; at < bytes; at += kLine) __builtin_prefetch(row + at, 0, 2);
}
inline void prefetch_to_write(const std::byte* row, dim_t bytes) {
  for (dim_t at = 0; at < bytes; at += kLine) __builtin_prefetch(row + at, 1, 2);
}

// Bytes of a dense row of t: [batch, heads, tokens, dim]. Others lie too far apart to ask for.
inline dim_t dense_bytes(const TensorView& t) {
  return t.strides()[3] == 1 ? t.dim(3) * static_cast<dim_t>(item_size(t.dtype())) : 0;
}

}  // namespace cephalo
