// The backward pass for rows of more than 128 columns, and of float32 numbers in parts. A block
// owns 64 keys; its two warpgroups share the columns of their gradients, and of dq:
//
//     Sᵀ = k qᵀ, dPᵀ = v dcontextᵀ     both, all of it: neither has registers for what all columns
//     dv += Pᵀ dcontext, dk += dSᵀ q   become, nor is there shared memory for an exchange
//     dq += dS k                       dS through shared memory
//
// Products follow each other. Every kernel looks at pairs. dq is summed in float32 in the L2, by
// turns: warpgroups wait for their own, add from registers, and pass it on.
#pragma once

#include "cephalo/kernels/cuda/backward_pairs.cuh"
#include "cephalo/kernels/cuda/backward_wide_plan.cuh"
#include "cephalo/kernels/cuda/elements.cuh"

namespace cephalo::kernels::cuda {

// ---- a consumer: one warpgroup, 64 keys, half of the columns of their gradients -----------------
template <typename C>
struct WideBackwardConsumer : BackwardPairs<C, 0> {
  using Base = BackwardPairs<C, 0>;
  using Base::a, Base::sm, Base::warp, Base::lane, Base::dk, Base::dv;
  using Element = typename C::Element;
  static constexpr int kWidth = C::kWidth, kOwn = C::kOwnColumns, kParts = C::kParts;
  static constexpr int kPlanes = kWidth / 64;  // of one part
  static constexpr int kPlane = 8192;          // bytes
  static constexpr int kWords = Base::kWords;

  // Which columns; known at run time, since two copies of this would not fit the cache of
  // instructions.
  int half;
  __device__ WideBackwardConsumer(const HopperBackward& args, const WideBackwardShared<C>& shared,
                                  int own_half)
      : Base(args, shared), half(own_half) {}

  // acc = all keys times a block of queries, transposed; awaited.
  __device__ void against(float (&acc)[32], std::uint32_t keys, std::uint32_t queries) {
    const std::uint64_t x = hopper::ready(hopper::operand(keys, 0));
    const std::uint64_t y = hopper::ready(hopper::operand(queries, 0));
    hopper::products_fence();
#pragma unroll
    for (int n = 0; n < part_pairs(kParts); ++n) {
      const PartPair parts = part_pair<kParts>(n);
#pragma unroll
      for (int i = 0; i < kWidth / 16; ++i) {
        const int x_plane = parts.left * kPlanes + i / 4, y_plane = parts.right * kPlanes + i / 4;
        hopper::Product<Element, 64>::template from_shared<0>(
            acc, x + x_plane * (kPlane / 16) + i % 4 * 2, y + y_plane * (kPlane / 16) + i % 4 * 2,
            n + i > 0);
      }
    }
    hopper::products_commit();
    hopper::products_wait<0>();
    hopper::tie(acc);
  }
  // acc += w x, awaited. w: [64 keys, 64 queries], x: [64 queries, this half's columns]. Where
  // there are several parts a block has sums of its own: the tensor cores round towards 0.
  __device__ void accumulate(float (&acc)[kOwn / 2], const std::uint32_t (&w)[kParts * kWords],
                             std::uint32_t queries) {
    if constexpr (kParts == 1) {
      add_products(acc, w, queries, true);
    } else {
      float sums[kOwn / 2];
      add_products(sums, w, queries, false);
#pragma unroll
      for (int e = 0; e < kOwn / 2; ++e) acc[e] += sums[e];
    }
  }
  __device__ void add_products(float (&acc)[kOwn / 2], const std::uint32_t (&w)[kParts * kWords],
                               std::uint32_t queries, bool adds) {
    const std::uint64_t y =
        hopper::ready(hopper::operand(queries + half * (kOwn / 64) * kPlane, kPlane));
    hopper::products_fence();
#pragma unroll
    for (int n = 0; n < part_pairs(kParts); ++n) {
      const PartPair parts = part_pair<kParts>(n);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        hopper::Product<Element, kOwn>::template from_registers<1>(
            acc, w + parts.left * kWords + 4 * i,
            y + parts.right * kPlanes * (kPlane / 16) + i * 128, adds || n + i > 0);
      }
    }
    hopper::products_commit();
    hopper::products_wait<0>();
    hopper::tie(acc);
  }
  // dSᵀ [parts][64 keys][64 queries], swizzled, where both warpgroups read it.
  __device__ void publish(const std::uint32_t (&dS)[kParts * kWords]) {
    const int row = warp * 16 + lane % 16;
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int chunk = 2 * i + lane / 16;
        const std::uint32_t* of = dS + part * kWords + 4 * i;
        const std::uint32_t w[4] = {of[0], of[1], of[2], of[3]};
        hopper::store_fragments(sm.ds() + part * kPlane + row * 128 + (chunk ^ (row % 8)) * 16, w);
      }
    }
    hopper::fence_async();
  }
  // dq: [64 queries, this half's columns], awaited
  __device__ void query_gradient(float (&dq)[kOwn / 2]) {
    const std::uint64_t x = hopper::ready(hopper::operand(sm.ds(), 0));
    const std::uint64_t y =
        hopper::ready(hopper::operand(sm.k() + half * (kOwn / 64) * kPlane, kPlane));
    hopper::products_fence();
#pragma unroll
    for (int n = 0; n < part_pairs(kParts); ++n) {
      const PartPair parts = part_pair<kParts>(n);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        hopper::Product<Element, kOwn>::template from_shared<1>(
            dq, x + parts.left * (kPlane / 16) + i * 128,
            y + parts.right * kPlanes * (kPlane / 16) + i * 128, n + i > 0);
      }
    }
    hopper::products_commit();
    hopper::products_wait<0>();
    hopper::tie(dq);
  }
  // Both halves take the same turn, one after the other or at once: their columns differ.
  __device__ void add_query_gradient(const float (&dq)[kOwn / 2], const BackwardTile& tile,
                                     const BackwardWalk<C>& walk) {
    unsigned* const counter = a.turns + walk.number;
    const bool is_first = threadIdx.x % 128 == 0;
    if (a.by_turns) {
      const unsigned before = 2 * turn_at<C>(a, tile, walk.block);
      while (is_first && hopper::turn_of(counter) < before) {
      }
      hopper::threads_sync(kOwnGroup + half, 128);
    }
    float* const to =
        a.dq + (walk.row() + warp * 16 + lane / 4) * kWidth + half * kOwn + 2 * (lane % 4);
#pragma unroll
    for (int j = 0; j < kOwn / 8; ++j) {
      hopper::add_two(to + 8 * j, dq[4 * j], dq[4 * j + 1]);
      hopper::add_two(to + 8 * kWidth + 8 * j, dq[4 * j + 2], dq[4 * j + 3]);
    }
    if (a.by_turns) {
      __threadfence();
      hopper::threads_sync(kOwnGroup + half, 128);
      if (is_first) hopper::pass_turn(counter);
    }
  }
  __device__ void release(std::uint32_t barrier) {  // this warp no longer reads the stage
    __syncwarp();
    hopper::warp_arrive(barrier, lane);
  }

  __device__ void step(const BackwardTile& tile, const BackwardWalk<C>& walk, int i) {
    const int s = i % C::kStages, parity = i / C::kStages & 1;
    const int query = walk.block * C::kQueries;
    float S[32], dP[32];
    std::uint32_t w[kParts * kWords];  // weights, then gradients of scores
    std::uint32_t dropped;
    against(S, sm.k(), sm.q(s));
    this->pair_weights(S, w, dropped, tile, walk.head, query, s);
    hopper::tie(S);
    hopper::tie(w);
    hopper::barrier_wait(sm.dcontext_full(s), parity);
    accumulate(dv, w, sm.dcontext(s));
    against(dP, sm.v(), sm.dcontext(s));
    this->pair_gradient(S, dP, w, dropped, s);
    hopper::tie(w);
    release(sm.dcontext_free(s));
    if (half == 0) {
      if (i > 0) hopper::threads_sync(kDsIsRead, 256);
      publish(w);
    }
    accumulate(dk, w, sm.q(s));
    release(sm.q_free(s));
    hopper::threads_sync(kBothGroups, 256);
    float dq[kOwn / 2];
    query_gradient(dq);
    if (half == 1 && i + 1 < walk.steps) hopper::threads_arrive(kDsIsRead, 256);
    add_query_gradient(dq, tile, walk);
  }

  // acc · factor to this half's columns of rows of keys.
  __device__ void write(const float (&acc)[kOwn / 2], float factor, const Rows& rows, int columns,
                        const BackwardTile& tile) {
    float wrong[2] = {0, 0};
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int key = this->key_of_thread(tile) + 8 * r;
      const Row to = row_of(rows, tile.batch, tile.kv_head, min(key, a.kv_tokens - 1));
#pragma unroll
      for (int j = 0; j < kOwn / 8; ++j) {
        const float low = acc[4 * j + 2 * r] * factor, high = acc[4 * j + 2 * r + 1] * factor;
        wrong[r] = fmaf(low, 0.0F, fmaf(high, 0.0F, wrong[r]));
        if (key < a.kv_tokens) {
          to.set_two(half * kOwn + 8 * j + 2 * (lane % 4), columns, low, high);
        }
      }
    }
    this->list_for_care(tile, wrong);
  }

  __device__ void run(const BackwardTile& tile) {
#pragma unroll
    for (int e = 0; e < kOwn / 2; ++e) dk[e] = dv[e] = 0;
    hopper::barrier_wait(sm.kv_full(), 0);
    this->clear_unwritten_keys(tile, sm.kv_full(), 0);
    const BackwardMask mask = backward_mask<C>(a, tile);
    BackwardWalk<C> walk(a, tile);
    for (int i = 0; i < walk.steps; ++i, walk.next()) {
      const int s = i % C::kStages, parity = i / C::kStages & 1;
      hopper::barrier_wait(sm.q_full(s), parity);
      if (walk.block >= mask.unwritten) {
        hopper::barrier_wait(sm.dcontext_full(s), parity);
        this->clear_unwritten_queries(tile, walk.block, s);
      }
      step(tile, walk, i);
    }
    const bool drops = a.pairs.dropout.threshold != 0;
    write(dv, drops ? static_cast<float>(a.pairs.dropout.grown) : 1.0F, a.dv_rows, a.v_columns,
          tile);
    write(dk, a.scale, a.dk_rows, a.columns, tile);
  }
};

template <typename C>
__global__ void __launch_bounds__(C::kThreads, 1)
    attend_backward_wide(const __grid_constant__ HopperBackward a) {
  extern __shared__ __align__(1024) unsigned char raw[];  // as the swizzle needs it
  const WideBackwardShared<C> sm{hopper::shared_address(raw)};
  if (threadIdx.x == 0) {
    hopper::barrier_init(sm.kv_full(), 1);
    for (int s = 0; s < C::kStages; ++s) {
      hopper::barrier_init(sm.q_full(s), 1);
      hopper::barrier_init(sm.dcontext_full(s), 1);
      hopper::barrier_init(sm.q_free(s), 8 * hopper::kWarpArrivals);
      hopper::barrier_init(sm.dcontext_free(s), 8 * hopper::kWarpArrivals);
    }
    // Tickets and not blockIdx: who waits for a lower one waits for a block that has started.
    hopper::put_shared(sm.ticket(), static_cast<int>(atomicAdd(a.next_tile, 1u)));
    hopper::fence_barrier_init();
  }
  __syncthreads();
  const int role = __shfl_sync(~0u, threadIdx.x / 128, 0);
  const BackwardTile tile = backward_tile<C>(a, hopper::get_shared(sm.ticket()));
  if (role == 0) {
    hopper::registers_down<C::kProducerRegisters>();
    if (threadIdx.x == 0) load_wide_blocks<C>(a, sm, tile);
  } else {
    hopper::registers_up<C::kConsumerRegisters>();
    WideBackwardConsumer<C>(a, sm, role - 1).run(tile);
  }
}

}  // namespace cephalo::kernels::cuda
