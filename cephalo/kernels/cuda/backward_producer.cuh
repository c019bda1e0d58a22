// The one thread of the backward pass that loads tiles and blocks, and those that add dq by turns.
#pragma once

#include "cephalo/kernels/cuda/backward_plan.cuh"

namespace cephalo::kernels::cuda {

// ---- the producer: one thread -------------------------------------------------------------------
// [kQueries/64][2][64 queries][64 keys], where ds will be: nobody reads the one that was there any
// more, and a warpgroup's part of either lies in the same place.
template <typename C>
__device__ inline void load_bias(const HopperBackward& a, const BackwardShared<C>& sm,
                                 const BackwardTile& tile, const hopper::BoxPlace& queries, int s) {
  for (int n = 0; n < C::kQueries / 32; ++n) {
    hopper::square_load(
        sm.ds(s) + n * 8192, &a.bias.map, sm.q_full(s), tile.key + n % 2 * 64,
        {queries.row + n / 2 * 64, a.bias.by_head * queries.head, a.bias.by_batch * queries.batch});
  }
}
// Block i of all that were and will be loaded. With the first of a tile comes its v, too, which
// load_keys brings.
template <typename C>
__device__ inline void load_block(const HopperBackward& a, const BackwardShared<C>& sm,
                                  const BackwardTile& tile, const BackwardWalk<C>& walk, int i,
                                  bool is_first) {
  const int s = i % 2;
  const hopper::BoxPlace queries{walk.block * C::kQueries, walk.head, tile.batch};
  hopper::barrier_wait(sm.q_free(s), (i / 2 & 1) ^ 1);
  hopper::barrier_expect(
      sm.q_full(s), C::kQBytes + (C::kPairs ? 2 : 1) * C::kRowBytes + (C::kBias ? C::kDsBytes : 0));
  hopper::box_load(sm.q(s), &a.q, sm.q_full(s), queries);
  hopper::bytes_load(sm.lse(s), a.lse2 + walk.row(), C::kRowBytes, sm.q_full(s));
  if (C::kPairs) {
    hopper::bytes_load(sm.share(s), a.share2 + walk.row(), C::kRowBytes, sm.q_full(s));
  }
  if constexpr (C::kBias) load_bias(a, sm, tile, queries, s);
  hopper::barrier_expect(sm.dcontext_full(s),
                         C::kQBytes + C::kRowBytes + (is_first ? C::kKvBytes : 0));
  hopper::box_load(sm.dcontext(s), &a.dcontext, sm.dcontext_full(s), queries);
  hopper::bytes_load(sm.delta(s), a.delta + walk.row(), C::kRowBytes, sm.dcontext_full(s));
}
// Tells everybody of a tile, and loads its k and v. first: its first block.
template <typename C>
__device__ inline void load_keys(const HopperBackward& a, const BackwardShared<C>& sm,
                                 const BackwardTile& tile, int round, int first) {
  const hopper::BoxPlace keys{tile.key, tile.kv_head, tile.batch};
  hopper::barrier_wait(sm.k_free(), (round & 1) ^ 1);
  put_tile(sm.tile(), tile);
  if (tile.count > 0) {
    hopper::barrier_expect(sm.k_full(), C::kKvBytes);
    hopper::box_load(sm.k(), &a.k, sm.k_full(), keys);
  } else {
    hopper::barrier_arrive(sm.k_full());
  }
  hopper::barrier_wait(sm.v_free(), (round & 1) ^ 1);
  if (tile.count > 0) hopper::box_load(sm.v(), &a.v, sm.dcontext_full(first % 2), keys);
}
// Tickets and not blockIdx: who waits for a tile waits for one with a lower ticket, which is on its
// way. A tile's first two blocks come while the one before it ends, its k while those gradients are
// written, and its v when they have left.
template <typename C>
__device__ inline void load_tiles(const HopperBackward& a, const BackwardShared<C>& sm) {
  constexpr int kBeforeKeys = 2;
  const int tiles = key_tiles<C>(a) * a.batch * a.num_kv_heads;
  int loaded = 0;  // blocks
  for (int round = 0;; ++round) {
    const int ticket = static_cast<int>(atomicAdd(a.next_tile, 1u));
    const bool is_end = ticket >= tiles;
    const BackwardTile tile = is_end ? BackwardTile{0, 0, 0, 0, -1} : backward_tile<C>(a, ticket);
    BackwardWalk<C> walk(a, tile);
    const int steps = max(walk.steps, 0);
    for (int n = 0; n <= steps; ++n) {
      if (n == min(steps, kBeforeKeys)) load_keys<C>(a, sm, tile, round, loaded);
      if (n == steps) break;
      load_block<C>(a, sm, tile, walk, loaded + n, n == 0);
      walk.next();
    }
    if (is_end) return;
    loaded += steps;
  }
}

// ---- the writers of dq: one thread for each buffer ----------------------------------------------
// The first to add to a block stores it, so that nobody needs to clear it. The turn is passed when
// sums have arrived, not when they were read; one thread that waited for both buffers' sums could
// not keep up with the warpgroups.
template <typename C>
__device__ inline void add_block(const HopperBackward& a, const BackwardShared<C>& sm,
                                 const BackwardTile& tile, const BackwardWalk<C>& walk, int i) {
  unsigned* const counter = a.turns + walk.number;
  float* const to = a.dq + std::int64_t{walk.number} * kDqBlock;
  const unsigned turn = turn_at<C>(a, tile, walk.block);
  while (hopper::turn_of(counter) != turn) {
  }
  hopper::barrier_wait(sm.dq_full(i % 2), i / 2 & 1);
  hopper::fence_copies();
  if (turn == 0) {
    hopper::bytes_store(to, sm.dq(i % 2), C::kDqBytes);
  } else {
    hopper::bytes_add(to, sm.dq(i % 2), C::kDqBytes);
  }
  hopper::stores_wait_read();
  hopper::barrier_arrive(sm.dq_free(i % 2));
  hopper::stores_wait_done<0>();
  hopper::fence_copies();
  hopper::pass_turn(counter);
}
template <typename C>
__device__ inline void add_tiles_by_turns(const HopperBackward& a, const BackwardShared<C>& sm,
                                          int writer) {
  int i = 0;  // blocks so far
  for (int round = 0;; ++round) {
    hopper::barrier_wait(sm.k_full(), round & 1);
    const BackwardTile tile = get_backward_tile(sm.tile());
    if (tile.count < 0) return;
    hopper::barrier_arrive(sm.k_free());
    BackwardWalk<C> walk(a, tile);
    for (int left = walk.steps; left > 0; --left, ++i, walk.next()) {
      if (i % C::kWriters == writer) add_block<C>(a, sm, tile, walk, i);
    }
  }
}

}  // namespace cephalo::kernels::cuda
