#pragma once

#include <cstdint>

#include "cephalo/core/dtype.h"

// What kernels of a GPU are given: addresses, strides and sizes. Plain structs: nvcc and the host's
// compiler read the same bytes.
namespace cephalo::kernels::cuda {

// Rows in device memory: [batch, heads, tokens, columns], strides in elements. lse and its gradient
// have one column.
struct Rows {
  void* data;
  DType dtype;
  std::int64_t stride[4];
};

// May eight columns be read or written at once, as 16 bytes?
inline bool has_eights(const Rows& t) {
  const bool is_16_bit = t.dtype == DType::bf16 || t.dtype == DType::f16;
  return is_16_bit && t.stride[3] == 1 && reinterpret_cast<std::uintptr_t>(t.data) % 16 == 0 &&
         (t.stride[0] | t.stride[1] | t.stride[2]) % 8 == 0;
}

struct Sizes {
  std::int64_t batch, num_heads, num_kv_heads;
  std::int64_t q_tokens, kv_tokens;
  std::int64_t head_dim, v_dim;
};

// Which keys positions leave to the queries of a sequence: BoundMask's rule, number by number.
struct PositionRule {
  std::int64_t q_len, kv_len;
  std::int64_t shift;  // from query i to the key at its position
  std::int64_t prefix, left, right;
};

// A tensor inside a mask; a stride of 0 where it is broadcast.
struct MaskPart {
  enum class Role : std::uint8_t { keep, drop, bias };
  const void* data;
  DType dtype;
  Role role;
  std::int64_t stride[4];  // batch, head, query, key
};
constexpr int kMostMaskParts = 8;

// Everything here lies in device memory; what is null is not part of the mask.
struct MaskArgs {
  const PositionRule* rules;        // one for all sequences, or one for each
  std::int64_t rule_stride;         // 0 or 1
  const std::int32_t* q_documents;  // numbers of documents; below 0: of none
  const std::int32_t* kv_documents;
  std::int64_t q_documents_stride, kv_documents_stride;  // from one sequence to the next
  const double* slopes;                                  // [num_heads], of all alibi parts together
  MaskPart parts[kMostMaskParts];
  int part_count;
  std::int64_t kv_begin;  // where key 0 stands in the whole
};

// Word key % 4 of philox(seed, {key / 4, position, head, batch}) decides; all four are the whole's.
struct Dropout {
  std::uint64_t seed;
  const std::uint64_t* seed_at;  // in device memory, instead of seed; null: seed
  std::uint64_t threshold;       // what is below is dropped; 0: no dropout
  double grown;                  // what a kept weight is multiplied by
  std::uint32_t head_begin, batch_begin;
};

struct AttendArgs {
  Sizes sizes;
  Rows q, k, v;
  Rows context, lse;  // lse.data null: not wanted
  MaskArgs mask;
  Dropout dropout;
  double scale;
  double softcap;  // 0: none
};

}  // namespace cephalo::kernels::cuda
