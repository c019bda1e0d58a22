// What a block of the forward kernel is made of (ForwardConfig), where things lie in its shared
// memory (ForwardShared), and which tile of the problem comes next (tile_at).
#pragma once

#include "cephalo/kernels/cuda/hopper.cuh"
#include "cephalo/kernels/cuda/hopper.h"
#include "cephalo/kernels/cuda/rules.cuh"

namespace cephalo::kernels::cuda {

// Widths of 64 and 128. kHandOff: the next warpgroup may start its products after so many steps of
// this one's second product.
template <int kWidth, bool kPairs>
struct ForwardTuning;
template <>
struct ForwardTuning<128, false> {
  static constexpr int kGroups = 2, kKeys = 128, kStages = 2, kHandOff = 7;
  static constexpr int kConsumerRegisters = 240, kProducerRegisters = 24;
};
template <>
struct ForwardTuning<64, false> {
  static constexpr int kGroups = 3, kKeys = 96, kStages = 4, kHandOff = 2;
  static constexpr int kConsumerRegisters = 160, kProducerRegisters = 32;
};
// A look at pairs needs registers: blocks of 64 keys, whose 32 scores of a thread have a bit each
// in one word.
template <>
struct ForwardTuning<128, true> {
  static constexpr int kGroups = 2, kKeys = 64, kStages = 4, kHandOff = 2;
  static constexpr int kConsumerRegisters = 232, kProducerRegisters = 40;
};
template <>
struct ForwardTuning<64, true> {
  static constexpr int kGroups = 2, kKeys = 64, kStages = 4, kHandOff = 2;
  static constexpr int kConsumerRegisters = 232, kProducerRegisters = 40;
};

template <typename Element_, int kColumns, LooksAt kLooksAt>
struct ForwardConfig : ForwardTuning<kColumns, kLooksAt == LooksAt::pairs> {
  using Element = Element_;
  static constexpr int kWidth = kColumns;
  static constexpr bool kSpans = kLooksAt != LooksAt::nothing, kPairs = kLooksAt == LooksAt::pairs;
  using Tuning = ForwardTuning<kWidth, kPairs>;
  static constexpr int kRows = 64 * Tuning::kGroups, kThreads = 128 * (Tuning::kGroups + 1);
  // One warpgroup's q; one stage of k or v.
  static constexpr int kQBytes = 64 * kWidth * 2, kKvBytes = Tuning::kKeys * kWidth * 2;
  static constexpr int kQAll = Tuning::kGroups * kQBytes, kKvAll = 2 * Tuning::kStages * kKvBytes;
  // Is there room to fetch the next tile's q early?
  static constexpr int kQBuffers = kKvAll + 2 * kQAll + 2048 <= 232448 ? 2 : 1;
  static constexpr int kKAt = kQBuffers * kQAll, kVAt = kKAt + kKvAll / 2;
  static constexpr int kBarriersAt = kVAt + kKvAll / 2;
  static constexpr int kSharedBytes = kBarriersAt + 320;
};

// q [kQBuffers][kGroups][width/64][64][64], k and v [kStages][width/64][kKeys][64], all with the
// 128-byte swizzle, then barriers. x names a warpgroup's q buffer: buffer · kGroups + warpgroup.
template <typename C>
struct ForwardShared {
  std::uint32_t base;
  __device__ std::uint32_t q(int x) const { return base + x * C::kQBytes; }
  __device__ std::uint32_t k(int s) const { return base + C::kKAt + s * C::kKvBytes; }
  __device__ std::uint32_t v(int s) const { return base + C::kVAt + s * C::kKvBytes; }
  __device__ std::uint32_t k_full(int s) const { return base + C::kBarriersAt + 8 * s; }
  __device__ std::uint32_t v_full(int s) const { return base + C::kBarriersAt + 32 + 8 * s; }
  __device__ std::uint32_t k_free(int s) const { return base + C::kBarriersAt + 64 + 8 * s; }
  __device__ std::uint32_t v_free(int s) const { return base + C::kBarriersAt + 96 + 8 * s; }
  __device__ std::uint32_t q_full(int x) const { return base + C::kBarriersAt + 128 + 8 * x; }
  __device__ std::uint32_t q_free(int x) const { return base + C::kBarriersAt + 192 + 8 * x; }
  // The number of the tile whose q is in the buffer; below 0: there are no more.
  __device__ std::uint32_t tile(int x) const { return base + C::kBarriersAt + 256 + 4 * x; }
};

struct ForwardTile {
  int row, head, batch;
  int first_key, blocks;  // blocks of keys from first_key on; at least 1
};

template <typename C>
__host__ __device__ inline int tile_count(const HopperForward& a) {
  return (a.q_tokens + C::kRows - 1) / C::kRows * a.batch * a.num_heads;
}

// Heads whose k and v fit the L2 together: such a group is finished before the next.
template <typename C>
__device__ inline int heads_together(const HopperForward& a) {
  const std::int64_t bytes = static_cast<std::int64_t>(a.kv_tokens) * C::kWidth * 4;
  return static_cast<int>(max(std::int64_t{1}, (std::int64_t{32} << 20) / bytes));
}

// The keys that documents leave to the rows of a tile.
__device__ inline IndexSpan keys_by_document(const DocumentSpans& d, const ForwardTile& tile,
                                             int rows, int q_tokens) {
  const IndexSpan* spans = d.keys + tile.batch * d.blocks_stride;
  const int last = (min(tile.row + rows, q_tokens) - 1) / kDocumentQueries;
  IndexSpan all = spans[tile.row / kDocumentQueries];
  for (int n = tile.row / kDocumentQueries + 1; n <= last; ++n) {
    all = {min(all.begin, spans[n].begin), max(all.end, spans[n].end)};
  }
  return all;
}

// Groups of heads in turn; within one, the last rows first: with a causal mask they take longest.
template <typename C>
__device__ inline ForwardTile tile_at(const HopperForward& a, int t) {
  const int per_head = (a.q_tokens + C::kRows - 1) / C::kRows, heads = a.batch * a.num_heads;
  int m = t % per_head, head = t / per_head;
  if (C::kSpans) {
    const int group = heads_together<C>(a);
    const int first = t / (group * per_head) * group, in = t - first * per_head;
    const int count = min(group, heads - first);
    m = per_head - 1 - in / count;
    head = first + in % count;
  }
  ForwardTile tile{m * C::kRows, head % a.num_heads, head / a.num_heads, 0, 1};
  int begin = 0, end = a.kv_tokens;
  if (C::kSpans) {
    const ShortRule rule = short_rule(a.rules[tile.batch * a.rule_stride]);
    const int last = min(tile.row + C::kRows, rule.q_len) - 1;
    begin = rule.begin(tile.row);
    end = tile.row <= last ? rule.end(last) : 0;
    if (C::kPairs && a.pairs.documents.keys != nullptr) {
      const IndexSpan keys = keys_by_document(a.pairs.documents, tile, C::kRows, a.q_tokens);
      begin = max(begin, keys.begin);
      end = min(end, keys.end);
    }
    if (begin >= end) begin = end = 0;
  }
  tile.first_key = begin / C::kKeys * C::kKeys;
  tile.blocks = max(1, (end - tile.first_key + C::kKeys - 1) / C::kKeys);
  return tile;
}

}  // namespace cephalo::kernels::cuda
