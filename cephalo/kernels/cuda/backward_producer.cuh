// The one thread of the backward pass that loads blocks, and the one that adds those of dq by
// turns.
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
template <typename C>
__device__ inline void load_blocks(const HopperBackward& a, const BackwardShared<C>& sm,
                                   const BackwardTile& tile) {
  const hopper::BoxPlace keys{tile.key, tile.kv_head, tile.batch};
  hopper::barrier_expect(sm.kv_full(), 2 * C::kKvBytes);
  hopper::box_load(sm.k(), &a.k, sm.kv_full(), keys);
  hopper::box_load(sm.v(), &a.v, sm.kv_full(), keys);
  BackwardWalk<C> walk(a, tile);
  for (int i = 0; i < walk.steps; ++i, walk.next()) {
    const int s = i % 2;
    const std::int64_t row = walk.number * C::kQueries;
    const hopper::BoxPlace queries{walk.block * C::kQueries, walk.head, tile.batch};
    hopper::barrier_wait(sm.q_free(s), (i / 2 & 1) ^ 1);
    hopper::barrier_expect(sm.q_full(s), C::kQBytes + (C::kPairs ? 2 : 1) * C::kRowBytes +
                                             (C::kBias ? C::kDsBytes : 0));
    hopper::box_load(sm.q(s), &a.q, sm.q_full(s), queries);
    hopper::bytes_load(sm.lse(s), a.lse2 + row, C::kRowBytes, sm.q_full(s));
    if (C::kPairs) hopper::bytes_load(sm.share(s), a.share2 + row, C::kRowBytes, sm.q_full(s));
    if constexpr (C::kBias) load_bias(a, sm, tile, queries, s);
    hopper::barrier_expect(sm.dcontext_full(s), C::kQBytes + C::kRowBytes);
    hopper::box_load(sm.dcontext(s), &a.dcontext, sm.dcontext_full(s), queries);
    hopper::bytes_load(sm.delta(s), a.delta + row, C::kRowBytes, sm.dcontext_full(s));
  }
}

// ---- the writer of dq: one thread ---------------------------------------------------------------
// A block's sums are on their way while the next block is waited for; the turn is passed when they
// have arrived, not when they were read.
template <typename C>
__device__ inline void add_blocks_by_turns(const HopperBackward& a, const BackwardShared<C>& sm,
                                           const BackwardTile& tile) {
  BackwardWalk<C> walk(a, tile);
  unsigned* before = nullptr;  // the counter of the last block
  for (int i = 0; i < walk.steps; ++i, walk.next()) {
    unsigned* const counter = a.turns + walk.number;
    const unsigned turn = turn_at<C>(a, tile, walk.block);
    while (hopper::turn_of(counter) != turn) {
    }
    hopper::barrier_wait(sm.dq_full(i % 2), i / 2 & 1);
    hopper::fence_copies();
    hopper::bytes_add(a.dq + walk.number * kDqBlock, sm.dq(i % 2), C::kDqBytes);
    hopper::stores_commit();
    if (i > 0) {
      hopper::stores_wait_done<1>();
      hopper::barrier_arrive(sm.dq_free((i - 1) % 2));
      hopper::fence_copies();
      hopper::pass_turn(before);
    }
    before = counter;
  }
  if (before == nullptr) return;
  hopper::stores_wait_done<0>();
  hopper::fence_copies();
  hopper::pass_turn(before);
}

}  // namespace cephalo::kernels::cuda
