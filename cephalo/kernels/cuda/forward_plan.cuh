// What a block of the forward kernel is made of (ForwardConfig), where things lie in its shared
// memory (ForwardShared), and which tile of the problem comes next (tile_at).
#pragma once

#include "cephalo/kernels/cuda/hopper.cuh"
#include "cephalo/kernels/cuda/hopper.h"
#include "cephalo/kernels/cuda/parts.cuh"
#include "cephalo/kernels/cuda/rules.cuh"

namespace cephalo::kernels::cuda {

// hand_off: the next warpgroup may start its products after so many steps of this one's second
// product.
struct ForwardTuning {
  int groups, keys, stages, hand_off, consumer_registers, producer_registers;
};
constexpr bool is_plain(LooksAt looks_at) {
  return looks_at == LooksAt::nothing || looks_at == LooksAt::positions;
}
constexpr ForwardTuning forward_tuning(int width, LooksAt looks_at, bool has_documents) {
  // A look at pairs needs registers: blocks of 64 keys, whose 32 scores of a thread have a bit each
  // in one word.
  if (looks_at == LooksAt::pairs) return {2, 64, 4, 2, 232, 40};
  if (width == 128) {
    const bool needs_few = is_plain(looks_at);
    return {2, 128, 2, 7, needs_few ? 240 : 232, needs_few ? 24 : 40};
  }
  if (has_documents) return {2, 128, 4, 4, 232, 40};
  if (looks_at == LooksAt::bias) return {2, 128, 3, 2, 232, 40};
  if (looks_at == LooksAt::dropout) return {3, 64, 4, 2, 160, 32};  // draws need registers
  return {3, 96, 4, 4, 160, 32};
}

// More than 128 columns, or several parts: blocks of 32 keys leave registers and shared memory.
constexpr ForwardTuning wide_forward_tuning(int v_width, int parts) {
  if (parts == 1 && v_width <= 128) return {2, 64, 4, 3, 232, 40};
  return {2, 32, parts == 3 && v_width > 64 ? 2 : 4, 2 * part_pairs(parts) - 1, 232, 40};
}

template <typename Element_, int kColumns, LooksAt kLooksAt, int kVColumns = kColumns,
          int kPartCount = 1, bool kHasDocuments = false>
struct ForwardConfig : Looks<kLooksAt> {
  using Element = Element_;
  using Look = Looks<kLooksAt>;
  static constexpr bool kIsWide = kColumns > 128 || kPartCount > 1;
  static constexpr ForwardTuning kTuning = kIsWide
                                               ? wide_forward_tuning(kVColumns, kPartCount)
                                               : forward_tuning(kColumns, kLooksAt, kHasDocuments);
  // Columns of q and k, and of v and context; a row holds as many of each part.
  static constexpr int kWidth = kColumns, kVWidth = kVColumns, kParts = kPartCount;
  static constexpr int kKeys = kTuning.keys, kStages = kTuning.stages;
  static constexpr int kGroups = kTuning.groups, kHandOff = kTuning.hand_off;
  static constexpr int kConsumerRegisters = kTuning.consumer_registers,
                       kProducerRegisters = kTuning.producer_registers;
  // Documents without alibi take its kernel, too.
  static constexpr bool kMayLackSlopes = kHasDocuments;
  // Are rows watched whose sums have run away? Of 64 columns kernels that did were slower.
  static constexpr bool kWatches = is_plain(kLooksAt) && kColumns == 128;
  // Do warpgroups pass blocks by that none of their rows sees? Where blocks have as many keys as a
  // tile has rows there are few, and kernels that look for them are 3 % slower.
  static constexpr bool kPassesBy = kKeys < 64 * kGroups;
  static constexpr int kRows = 64 * kGroups, kThreads = 128 * (kGroups + 1);
  // One warpgroup's q; one stage of k or v; one warpgroup's bias.
  static constexpr int kQBytes = 64 * kWidth * kParts * 2;
  static constexpr int kKBytes = kKeys * kWidth * kParts * 2;
  static constexpr int kVBytes = kKeys * kVWidth * kParts * 2;
  static constexpr int kBiasStages = 2, kBiasBytes = Look::kBias ? 64 * kKeys * 2 : 0;
  static constexpr int kBiasAll = kBiasStages * kGroups * kBiasBytes;
  static constexpr int kQAll = kGroups * kQBytes, kKvAll = kStages * (kKBytes + kVBytes);
  // Is there room to fetch the next tile's q early?
  static constexpr int kQBuffers = kKvAll + kBiasAll + 2 * kQAll + 2048 <= 232448 ? 2 : 1;
  static constexpr int kKAt = kQBuffers * kQAll, kVAt = kKAt + kStages * kKBytes;
  static constexpr int kBiasAt = kKAt + kKvAll;
  static constexpr int kBarriersAt = kBiasAt + kBiasAll;
  static constexpr int kTilesAt = kBarriersAt + 352;
  static constexpr int kSharedBytes = kTilesAt + 32 * kQBuffers * kGroups;
  static_assert(20 + 4 * kGroups <= 32, "a plan, and what each warpgroup passes by");
  static_assert(kSharedBytes <= 232448 && kStages <= 4 && kQBuffers * kGroups <= 8);
};

// q [kQBuffers][kGroups][parts][width/64][64][64], k and v [kStages][parts][width/64][kKeys][64],
// bias [kBiasStages][kGroups][kKeys/64][64][64], all with the 128-byte swizzle, then barriers. x
// names a warpgroup's q buffer: buffer · kGroups + warpgroup.
template <typename C>
struct ForwardShared {
  std::uint32_t base;
  __device__ std::uint32_t q(int x) const { return base + x * C::kQBytes; }
  __device__ std::uint32_t k(int s) const { return base + C::kKAt + s * C::kKBytes; }
  __device__ std::uint32_t v(int s) const { return base + C::kVAt + s * C::kVBytes; }
  __device__ std::uint32_t bias(int s, int group) const {
    return base + C::kBiasAt + (s * C::kGroups + group) * C::kBiasBytes;
  }
  __device__ std::uint32_t k_full(int s) const { return base + C::kBarriersAt + 8 * s; }
  __device__ std::uint32_t v_full(int s) const { return base + C::kBarriersAt + 32 + 8 * s; }
  __device__ std::uint32_t k_free(int s) const { return base + C::kBarriersAt + 64 + 8 * s; }
  __device__ std::uint32_t v_free(int s) const { return base + C::kBarriersAt + 96 + 8 * s; }
  __device__ std::uint32_t q_full(int x) const { return base + C::kBarriersAt + 128 + 8 * x; }
  __device__ std::uint32_t q_free(int x) const { return base + C::kBarriersAt + 192 + 8 * x; }
  // The tile that comes next, once somebody knows it.
  __device__ std::uint32_t plan_full() const { return base + C::kBarriersAt + 256; }
  __device__ std::uint32_t plan_free() const { return base + C::kBarriersAt + 264; }
  __device__ std::uint32_t plan() const { return base + C::kBarriersAt + 288; }
  __device__ std::uint32_t bias_full(int s) const { return base + C::kBarriersAt + 320 + 8 * s; }
  __device__ std::uint32_t bias_free(int s) const { return base + C::kBarriersAt + 336 + 8 * s; }
  // The ForwardTile whose q is in the buffer.
  __device__ std::uint32_t tile(int x) const { return base + C::kTilesAt + 32 * x; }
};

struct ForwardTile {
  int row, head, batch;
  int first_key, blocks;  // blocks of keys from first_key on; below 1: there are no more tiles
};
__device__ inline void put_tile(std::uint32_t at, const ForwardTile& tile) {
  hopper::put_shared(at, tile.row);
  hopper::put_shared(at + 4, tile.head);
  hopper::put_shared(at + 8, tile.batch);
  hopper::put_shared(at + 12, tile.first_key);
  hopper::put_shared(at + 16, tile.blocks);
}
__device__ inline ForwardTile get_tile(std::uint32_t at) {
  const auto get = [&](int n) { return hopper::get_shared(at + 4 * n); };
  return {get(0), get(1), get(2), get(3), get(4)};
}
// The same for a whole warp.
__device__ inline ForwardTile get_tile_of_warp(std::uint32_t at) {
  const auto get = [&](int n) { return __shfl_sync(~0u, hopper::get_shared(at + 4 * n), 0); };
  return {get(0), get(1), get(2), get(3), get(4)};
}
// Behind a tile in shared memory: how many of its blocks none of a warpgroup's rows sees, on the
// right (low half) and on the left (high half). Of the plan those of every warpgroup, of a buffer
// of q its own.
constexpr int kPassedByAt = sizeof(ForwardTile);

template <typename C>
__host__ __device__ inline int tile_count(const HopperForward& a) {
  return (a.q_tokens + C::kRows - 1) / C::kRows * a.batch * a.num_heads;
}

// Heads whose k and v fit the L2 together: such a group is finished before the next.
template <typename C>
__device__ inline int heads_together(const HopperForward& a) {
  const std::int64_t bytes =
      static_cast<std::int64_t>(a.kv_tokens) * ((C::kKBytes + C::kVBytes) / C::kKeys);
  return static_cast<int>(max(std::int64_t{1}, (std::int64_t{32} << 20) / bytes));
}

// The keys that documents leave to the rows [row, row + rows) of a sequence.
__device__ inline IndexSpan keys_by_document(const DocumentSpans& d, int batch, int row, int rows,
                                             int q_tokens) {
  const IndexSpan* spans = d.keys + batch * d.blocks_stride;
  const int last = (min(row + rows, q_tokens) - 1) / kDocumentQueries;
  IndexSpan all = spans[row / kDocumentQueries];
  for (int n = row / kDocumentQueries + 1; n <= last; ++n) {
    all = {min(all.begin, spans[n].begin), max(all.end, spans[n].end)};
  }
  return all;
}

// The keys from the first to the last that any of so many rows from `row` on may see.
template <typename C>
__device__ inline IndexSpan keys_of_rows(const HopperForward& a, int batch, int row, int rows) {
  if (row >= a.q_tokens) return {0, 0};
  IndexSpan keys{0, a.kv_tokens};
  if (C::kSpans) {
    const ShortRule rule = short_rule(a.rules[batch * a.rule_stride]);
    const int last = min(row + rows, rule.q_len) - 1;
    keys = {rule.begin(row), row <= last ? rule.end(last) : 0};
    if (C::kDocuments && a.pairs.documents.keys != nullptr) {
      const IndexSpan by_document =
          keys_by_document(a.pairs.documents, batch, row, rows, a.q_tokens);
      keys = {max(keys.begin, by_document.begin), min(keys.end, by_document.end)};
    }
    if (keys.begin >= keys.end) keys = {0, 0};
  }
  return keys;
}

// What a warpgroup passes by of a tile: never all of its blocks.
template <typename C>
__device__ inline int passed_by(const HopperForward& a, const ForwardTile& tile, int group) {
  const IndexSpan keys = keys_of_rows<C>(a, tile.batch, tile.row + 64 * group, 64);
  const int seen = (max(0, keys.end - tile.first_key) + C::kKeys - 1) / C::kKeys;
  const int right = min(tile.blocks - seen, tile.blocks - 1);
  const int left = min(max(0, keys.begin - tile.first_key) / C::kKeys, tile.blocks - right - 1);
  return min(right, 0x7FFF) | min(left, 0x7FFF) << 16;
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
  const IndexSpan keys = keys_of_rows<C>(a, tile.batch, tile.row, C::kRows);
  tile.first_key = keys.begin / C::kKeys * C::kKeys;
  tile.blocks = max(1, (keys.end - tile.first_key + C::kKeys - 1) / C::kKeys);
  return tile;
}

}  // namespace cephalo::kernels::cuda
