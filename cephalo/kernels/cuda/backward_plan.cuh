// What a block of the backward kernel is made of, where things lie in its shared memory, and which
// tile of keys it owns.
#pragma once

#include "cephalo/kernels/cuda/dropout_bits.cuh"
#include "cephalo/kernels/cuda/hopper.cuh"
#include "cephalo/kernels/cuda/hopper.h"
#include "cephalo/kernels/cuda/rules.cuh"

namespace cephalo::kernels::cuda {

template <typename C>
struct BackwardShared;

template <typename Element_, int kColumns, LooksAt kLooksAt, bool kByTurns>
struct BackwardConfig : Looks<kLooksAt> {
  using Look = Looks<kLooksAt>;
  using Element = Element_;
  using Shared = BackwardShared<BackwardConfig>;
  static constexpr int kWidth = kColumns, kParts = 1, kKeys = 128, kThreads = 384;
  static constexpr bool kIsWide = false;
  static constexpr int kOwnColumns = kWidth;          // of dk and dv that a warpgroup has
  static constexpr int kQueries = kDqBlock / kWidth;  // of a step: 64 of width 128, 128 of width 64
  static constexpr bool kTurns = kByTurns;
  static constexpr int kWriters = kTurns ? 2 : 0;  // threads that add dq, one for each buffer
  static constexpr int kKvBytes = kKeys * kWidth * 2, kQBytes = kQueries * kWidth * 2;
  static constexpr int kDsBytes = kKeys * kQueries * 2, kRowBytes = kQueries * 4;
  static constexpr int kDqBytes = kDqBlock * 4;
  static constexpr int kVAt = kKvBytes, kQAt = 2 * kKvBytes, kDcontextAt = kQAt + 2 * kQBytes;
  static constexpr int kDsAt = kDcontextAt + 2 * kQBytes, kDqAt = kDsAt + 2 * kDsBytes;
  static constexpr int kLseAt = kDqAt + (kTurns ? 2 : 1) * kDqBytes,
                       kDeltaAt = kLseAt + 2 * kRowBytes, kShareAt = kDeltaAt + 2 * kRowBytes;
  static constexpr int kBarriersAt = kShareAt + (Look::kPairs ? 2 * kRowBytes : 0);
  static constexpr int kRoundKeysAt = kBarriersAt + 128;
  static constexpr int kSharedBytes = kRoundKeysAt + (Look::kDropout ? SharedKeys::kBytes : 0);
  // A block starts with 168 for each thread and never gets more: 3 · 168 = 24 + 2 · 240.
  static constexpr int kConsumerRegisters = 240, kProducerRegisters = 24;
};

// k and v [width/64][kKeys][64], q and dcontext [2][width/64][kQueries][64], ds
// [2][kQueries/64][kKeys][64], all with the 128-byte swizzle; dq [2] in the order of accumulators,
// between tiles a place for dk, in any order [1] for dk alone;
// lse, delta and share [2]; barriers.
template <typename C>
struct BackwardShared {
  std::uint32_t base;
  __device__ std::uint32_t k() const { return base; }
  __device__ std::uint32_t v() const { return base + C::kVAt; }
  __device__ std::uint32_t q(int s) const { return base + C::kQAt + s * C::kQBytes; }
  __device__ std::uint32_t dcontext(int s) const { return base + C::kDcontextAt + s * C::kQBytes; }
  __device__ std::uint32_t ds(int s) const { return base + C::kDsAt + s * C::kDsBytes; }
  __device__ std::uint32_t dq(int s) const { return base + C::kDqAt + s * C::kDqBytes; }
  __device__ std::uint32_t lse(int s) const { return base + C::kLseAt + s * C::kRowBytes; }
  __device__ std::uint32_t delta(int s) const { return base + C::kDeltaAt + s * C::kRowBytes; }
  __device__ std::uint32_t share(int s) const { return base + C::kShareAt + s * C::kRowBytes; }
  // Where a warpgroup's dk waits to be stored: the part of dq that it would write as block i.
  __device__ std::uint32_t dk(int group, int i) const {
    return dq(C::kTurns ? i % 2 : 0) + group * (C::kDqBytes / 2);
  }
  __device__ std::uint32_t k_full() const { return base + C::kBarriersAt; }
  __device__ std::uint32_t k_free() const { return base + C::kBarriersAt + 8; }
  __device__ std::uint32_t q_full(int s) const { return base + C::kBarriersAt + 16 + 8 * s; }
  __device__ std::uint32_t dcontext_full(int s) const { return base + C::kBarriersAt + 32 + 8 * s; }
  __device__ std::uint32_t q_free(int s) const { return base + C::kBarriersAt + 48 + 8 * s; }
  __device__ std::uint32_t dq_full(int s) const { return base + C::kBarriersAt + 64 + 8 * s; }
  __device__ std::uint32_t dq_free(int s) const { return base + C::kBarriersAt + 80 + 8 * s; }
  __device__ std::uint32_t v_free() const { return base + C::kBarriersAt + 96; }
  __device__ std::uint32_t tile() const { return base + C::kBarriersAt + 104; }
  __device__ std::uint32_t round_keys() const { return base + C::kRoundKeysAt; }
};

// Blocks of queries first .. first + count − 1 of every head of the group; a count below 0: there
// are no more tiles.
struct BackwardTile {
  int key, kv_head, batch, first, count;
};
__device__ inline void put_tile(std::uint32_t at, const BackwardTile& tile) {
  hopper::put_shared(at, tile.key);
  hopper::put_shared(at + 4, tile.kv_head);
  hopper::put_shared(at + 8, tile.batch);
  hopper::put_shared(at + 12, tile.first);
  hopper::put_shared(at + 16, tile.count);
}
__device__ inline BackwardTile get_backward_tile(std::uint32_t at) {
  return {hopper::get_shared(at), hopper::get_shared(at + 4), hopper::get_shared(at + 8),
          hopper::get_shared(at + 12), hopper::get_shared(at + 16)};
}
// The same for a whole warp.
__device__ inline BackwardTile get_warps_tile(std::uint32_t at) {
  const auto get = [&](int n) { return __shfl_sync(~0u, hopper::get_shared(at + 4 * n), 0); };
  return {get(0), get(1), get(2), get(3), get(4)};
}

template <typename C>
__host__ __device__ inline int query_blocks(const HopperBackward& a) {
  return (a.q_tokens + C::kQueries - 1) / C::kQueries;
}
template <typename C>
__host__ __device__ inline int key_tiles(const HopperBackward& a) {
  return (a.kv_tokens + C::kKeys - 1) / C::kKeys;
}

// Leaves the blocks of queries of which documents may hide less than everything.
template <typename C>
__device__ inline void keep_documents(const HopperBackward& a, BackwardTile& tile) {
  static_assert(C::kQueries % kDocumentQueries == 0 && kDocumentKeys % C::kKeys == 0);
  constexpr int kTogether = C::kQueries / kDocumentQueries;
  const DocumentSpans& d = a.pairs.documents;
  if (d.queries == nullptr) return;
  const IndexSpan span = d.queries[tile.batch * d.tiles_stride + tile.key / kDocumentKeys];
  const int end = min(tile.first + tile.count, (span.end + kTogether - 1) / kTogether);
  tile.first = max(tile.first, span.begin / kTogether);
  tile.count = max(0, end - tile.first);
}

// Leaves the blocks of queries that see anything of a tile's keys.
template <typename C>
__device__ inline void keep_visible(const HopperBackward& a, BackwardTile& tile) {
  if (C::kSpans) {
    const ShortRule rule = short_rule(a.rules[tile.batch * a.rule_stride]);
    const int first = rule.first_query(tile.key), last = rule.last_query(tile.key, C::kKeys);
    tile.first = first / C::kQueries;
    tile.count = first < last ? (last + C::kQueries - 1) / C::kQueries - tile.first : 0;
  }
  if (C::kDocuments) keep_documents<C>(a, tile);
}

// How many heads run at once: four tiles of a head at least follow each other, block by block, so
// that a block is in the L2 when they come. All groups of heads are of one size, or the last one
// would have many tiles of few.
__device__ inline int heads_at_once(const HopperBackward& a) {
  const int heads = a.batch * a.num_kv_heads, most = max(a.multiprocessors / 4, 1);
  const int groups = (heads + most - 1) / most;
  return (heads + groups - 1) / groups;
}

// The first keys come first, which with a causal mask most queries see.
template <typename C>
__device__ inline BackwardTile backward_tile(const HopperBackward& a, int t) {
  const int per_head = key_tiles<C>(a), heads = a.batch * a.num_kv_heads;
  const int group = heads_at_once(a);
  const int head0 = t / (group * per_head) * group, in = t - head0 * per_head;
  const int count = min(group, heads - head0);
  const int head = head0 + in % count, number = in / count;
  BackwardTile tile{number * C::kKeys, head % a.num_kv_heads, head / a.num_kv_heads, 0,
                    query_blocks<C>(a)};
  keep_visible<C>(a, tile);
  return tile;
}

// How many tiles add to this block of queries before this one does. They are neighbours, and the
// first of them holds the first key that the block sees.
template <typename C>
__device__ inline unsigned turn_at(const HopperBackward& a, const BackwardTile& tile, int block) {
  int first_key = 0;
  if (C::kSpans) {
    first_key = short_rule(a.rules[tile.batch * a.rule_stride]).begin(block * C::kQueries);
  }
  int first_tile = first_key / C::kKeys;
  const DocumentSpans& d = a.pairs.documents;
  if (C::kDocuments && d.first_tile != nullptr) {
    const int first = block * (C::kQueries / kDocumentQueries);
    const int first_there = d.first_tile[tile.batch * d.blocks_stride + first];
    first_tile = max(first_tile, first_there * (kDocumentKeys / C::kKeys));
  }
  return static_cast<unsigned>(tile.key / C::kKeys - first_tile);
}

// The queries of the one document that a tile's keys are all of; none where there are several.
template <typename C>
__device__ inline IndexSpan queries_of_tile(const HopperBackward& a, const BackwardTile& tile) {
  const DocumentSpans& d = a.pairs.documents;
  const int* ones = d.kv_one + tile.batch * d.kv_blocks_stride;
  const int block = tile.key / kDocumentQueries;
  const int last = min(tile.key + C::kKeys, a.kv_tokens) - 1;
  const bool one = ones[block] >= 0 && ones[block] == ones[last / kDocumentQueries];
  if (!one) return {0, 0};
  return d.of_key[tile.batch * a.pairs.mask.kv_documents_stride + tile.key];
}

// Blocks of queries of which every query sees every key of the tile: [clean_begin, clean_end). From
// `unwritten` on, blocks hold rows past the sequence's end, which nobody may have written.
struct BackwardMask {
  int clean_begin, clean_end, unwritten;
  __device__ bool hides(int block) const { return block < clean_begin || block >= clean_end; }
};
template <typename C>
__device__ inline BackwardMask backward_mask(const HopperBackward& a, const BackwardTile& tile) {
  constexpr int kNone = 1 << 30;
  const bool whole = tile.key + C::kKeys <= a.kv_tokens;
  if (!C::kSpans) return {0, whole ? query_blocks<C>(a) : 0, kNone};
  const ShortRule rule = short_rule(a.rules[tile.batch * a.rule_stride]);
  int first = rule.first_query(tile.key + C::kKeys - 1);
  int last = min(tile.key + rule.left - rule.shift, rule.q_len - 1);
  if (C::kOneThing && a.pairs.documents.of_key != nullptr) {
    const IndexSpan queries = queries_of_tile<C>(a, tile);
    first = max(first, queries.begin);
    last = min(last, queries.end - 1);
  }
  return {(first + C::kQueries - 1) / C::kQueries, (max(last, -1) + 1) / C::kQueries,
          rule.q_len < a.q_tokens ? rule.q_len / C::kQueries : kNone};
}

// The walk of a tile over its queries, the last ones first; all roles take the same one. A tile of
// higher keys has to add later: under a window it comes to a block later by itself then, and under
// a causal mask at the same time, where the first ones first would have it start ahead.
template <typename C>
struct BackwardWalk {
  int steps;
  int head, block;
  int number;  // of the block, over all heads
  int first, last, blocks;

  __device__ BackwardWalk(const HopperBackward& a, const BackwardTile& tile) {
    const int group = a.num_heads / a.num_kv_heads;
    blocks = query_blocks<C>(a);
    steps = group * tile.count;
    head = tile.kv_head * group;
    first = tile.first;
    block = last = tile.first + tile.count - 1;
    number = (tile.batch * a.num_heads + head) * blocks + block;
  }
  __device__ void next() {
    --number;
    if (--block >= first) return;
    number += blocks + last - block;
    block = last;
    ++head;
  }
  // Of all heads' rows, the block's first.
  __device__ std::int64_t row() const { return std::int64_t{number} * C::kQueries; }
};

}  // namespace cephalo::kernels::cuda
