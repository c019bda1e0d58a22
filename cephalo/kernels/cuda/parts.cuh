// A float32 number as a sum of bfloat16 ones, largest first: x = x0 + x1 + x2 to its last bit, and
// x0 + x1 to 16 bits. A product of two such sums is made of products of their parts; those that are
// left out are smaller than what rounding float32 loses (of two parts: 2^-16 of it).
//
// Numbers that are 16 bits wide have one part, themselves.
#pragma once

#include "cephalo/kernels/cuda/hopper.cuh"

namespace cephalo::kernels::cuda {

constexpr int part_pairs(int parts) {
  return parts * (parts + 1) / 2;
}

// Which parts are multiplied, the smallest products first: the tensor cores round their sums
// towards 0, so the fewer additions follow the large ones, the better.
struct PartPair {
  int left, right;
};
template <int kParts>
__device__ constexpr PartPair part_pair(int n) {
  if (kParts == 3) {
    if (n == 0) return {2, 0};
    if (n == 1) return {0, 2};
    if (n == 2) return {1, 1};
  }
  const int from_last = part_pairs(kParts) - 1 - n;
  if (from_last == 2) return {1, 0};
  if (from_last == 1) return {0, 1};
  return {0, 0};
}

// Two numbers become word n of each of kParts groups of kWords.
template <int kParts, int kWords, typename Element>
__device__ inline void put_parts(Element, float low, float high, int n,
                                 std::uint32_t (&words)[kParts * kWords]) {
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    const std::uint32_t word = hopper::pack(Element{}, low, high);
    words[part * kWords + n] = word;
    if (part + 1 < kParts) {
      float taken[2];
      hopper::unpack(Element{}, word, taken);
      low -= taken[0];
      high -= taken[1];
    }
  }
}

}  // namespace cephalo::kernels::cuda
