// Masks by position in 32 bits.
#pragma once

#include "cephalo/kernels/cuda/hopper.h"

namespace cephalo::kernels::cuda {

// A rule in 32 bits. What is farther than any token is as good as unlimited.
struct ShortRule {
  int q_len, kv_len, shift, prefix, left, right;

  // The keys [begin, end) of query i < q_len, as BoundMask::span says it.
  __device__ int begin(int i) const { return max(0, i + shift - left); }
  __device__ int end(int i) const {
    const int p = i + shift;
    return min(kv_len, min(max(p + 1, prefix), p + right + 1));
  }
  // The other way round: the queries [first, last) whose span may hold one of the keys
  // [key, key + count). Both ends never fall as keys grow.
  __device__ int first_query(int key) const {
    const int by_end = max(prefix > key ? 0 : key - shift, key - right - shift);
    return key < kv_len ? min(max(0, by_end), q_len) : q_len;
  }
  __device__ int last_query(int key, int count) const {
    return key < kv_len ? min(max(0, key + count + left - shift), q_len) : q_len;
  }
};
__device__ inline int shortened(std::int64_t x) {
  constexpr std::int64_t kFar = std::int64_t{1} << 30;
  return static_cast<int>(min(max(x, -kFar), kFar));
}
__device__ inline ShortRule short_rule(const PositionRule& rule) {
  return {shortened(rule.q_len),  shortened(rule.kv_len), shortened(rule.shift),
          shortened(rule.prefix), shortened(rule.left),   shortened(rule.right)};
}

}  // namespace cephalo::kernels::cuda
