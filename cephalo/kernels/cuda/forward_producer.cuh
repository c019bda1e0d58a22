// The producers of the forward pass: a thread that finds out which tile comes next, and one that
// keeps the copy engine busy. Rules and documents are far away in memory: who asks for them cannot
// load meanwhile.
#pragma once

#include "cephalo/kernels/cuda/forward_plan.cuh"

namespace cephalo::kernels::cuda {

// The next tile is asked for when this one's loads begin, and not earlier: who is slow takes fewer.
template <typename C>
__device__ inline void plan_tiles(const HopperForward& a, const ForwardShared<C>& sm) {
  const int tiles = tile_count<C>(a);
  int t = static_cast<int>(blockIdx.x);
  for (int round = 0;; ++round) {
    const ForwardTile tile = t < tiles ? tile_at<C>(a, t) : ForwardTile{};
    put_tile(sm.plan(), tile);
#pragma unroll 1  // registers are few
    for (int group = 0; C::kPassesBy && tile.blocks > 0 && group < C::kGroups; ++group) {
      hopper::put_shared(sm.plan() + kPassedByAt + 4 * group, passed_by<C>(a, tile, group));
    }
    hopper::barrier_arrive(sm.plan_full());
    if (tile.blocks < 1) return;
    hopper::barrier_wait(sm.plan_free(), round & 1);
    t = static_cast<int>(gridDim.x + atomicAdd(a.next_tile, 1u));
  }
}

template <typename C>
struct ForwardProducer {
  const HopperForward& a;
  ForwardShared<C> sm;
  int loaded = 0;                             // blocks of keys so far, for stage and parity
  int passed[C::kPassesBy ? C::kGroups : 1];  // by each warpgroup

  __device__ hopper::BoxPlace keys_at(const ForwardTile& tile, int j) const {
    return {tile.first_key + (tile.blocks - 1 - j) * C::kKeys,
            tile.head / (a.num_heads / a.num_kv_heads), tile.batch};
  }
  __device__ void load_k(const ForwardTile& tile, int j) {
    const int i = loaded + j, stage = i % C::kStages;
    hopper::barrier_wait(sm.k_free(stage), (i / C::kStages & 1) ^ 1);
    hopper::barrier_expect(sm.k_full(stage), C::kKBytes);
    hopper::box_load(sm.k(stage), &a.k, sm.k_full(stage), keys_at(tile, j));
    if constexpr (C::kBias) load_bias(tile, j);
  }
  // What is added to a block's scores, in boxes of 64 queries and 64 keys.
  __device__ void load_bias(const ForwardTile& tile, int j) {
    const int i = loaded + j, stage = i % C::kBiasStages;
    const int key = tile.first_key + (tile.blocks - 1 - j) * C::kKeys;
    hopper::barrier_wait(sm.bias_free(stage), (i / C::kBiasStages & 1) ^ 1);
    hopper::barrier_expect(sm.bias_full(stage), C::kGroups * C::kBiasBytes);
    for (int n = 0; n < C::kGroups * C::kKeys / 64; ++n) {
      const int group = n / (C::kKeys / 64), plane = n % (C::kKeys / 64);
      hopper::square_load(
          sm.bias(stage, group) + plane * 8192, &a.bias.map, sm.bias_full(stage), key + 64 * plane,
          {tile.row + 64 * group, a.bias.by_head * tile.head, a.bias.by_batch * tile.batch});
    }
  }
  __device__ void load_v(const ForwardTile& tile, int j) {
    const int i = loaded + j, stage = i % C::kStages;
    hopper::barrier_wait(sm.v_free(stage), (i / C::kStages & 1) ^ 1);
    hopper::barrier_expect(sm.v_full(stage), C::kVBytes);
    hopper::box_load(sm.v(stage), &a.v, sm.v_full(stage), keys_at(tile, j));
  }
  // The q of every warpgroup, once the buffer's last tile is stored.
  __device__ void load_q(const ForwardTile& tile, int round) {
#pragma unroll
    for (int group = 0; group < C::kGroups; ++group) {
      const int x = round % C::kQBuffers * C::kGroups + group;
      hopper::barrier_wait(sm.q_free(x), (round / C::kQBuffers & 1) ^ 1);
      put_tile(sm.tile(x), tile);
      if (C::kPassesBy) hopper::put_shared(sm.tile(x) + kPassedByAt, passed[group]);
      if (tile.blocks < 1) {
        hopper::barrier_arrive(sm.q_full(x));
        continue;
      }
      hopper::barrier_expect(sm.q_full(x), C::kQBytes);
      hopper::box_load(sm.q(x), &a.q, sm.q_full(x), {tile.row + 64 * group, tile.head, tile.batch});
    }
  }
  __device__ void run() {
    for (int round = 0;; ++round) {
      hopper::barrier_wait(sm.plan_full(), round & 1);
      const ForwardTile tile = get_tile(sm.plan());
#pragma unroll
      for (int group = 0; C::kPassesBy && group < C::kGroups; ++group) {
        passed[group] = hopper::get_shared(sm.plan() + kPassedByAt + 4 * group);
      }
      hopper::barrier_arrive(sm.plan_free());
      if (tile.blocks < 1) return load_q(tile, round);
      load_k(tile, 0);
      load_q(tile, round);
      for (int j = 0; j < tile.blocks; ++j) {
        if (j + 1 < tile.blocks) load_k(tile, j + 1);
        load_v(tile, j);
      }
      loaded += tile.blocks;
    }
  }
};

}  // namespace cephalo::kernels::cuda
