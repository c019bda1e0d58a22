// The backward pass on Hopper. A block owns 128 keys of one key head and walks over the queries
// that see them:
//
//     Sᵀ = k qᵀ,          Pᵀ = exp2(scale · Sᵀ − lse)      rows are keys, so Pᵀ and dSᵀ come out of
//     dPᵀ = v dcontextᵀ,  dSᵀ = Pᵀ (dPᵀ − delta)           the tensor cores in the very layout in
//     dv += Pᵀ dcontext,  dk += dSᵀ q                      which these two products take them
//     dq += dS k                                           needs dS of both warpgroups: the one
//                                                          exchange through shared memory
//
// Two consumer warpgroups own 64 keys each. dq is summed in float32 in the L2. By turns: threads of
// their own add a block of queries once all tiles before have done so, and pass the turn when its
// sums are there; tiles wait for tiles with lower tickets alone, which are running or done. In any
// order: warpgroups add from their registers. A block of the grid takes tile after tile.
#pragma once

#include <type_traits>

#include "cephalo/kernels/cuda/backward_pairs.cuh"
#include "cephalo/kernels/cuda/backward_producer.cuh"
#include "cephalo/kernels/cuda/backward_weights.cuh"

namespace cephalo::kernels::cuda {

// ---- a consumer: one warpgroup, 64 keys ---------------------------------------------------------
template <typename C, int kGroup>
struct BackwardConsumer
    : std::conditional_t<C::kPairs, BackwardPairs<C, kGroup>, BackwardWeights<C, kGroup>> {
  using Base = std::conditional_t<C::kPairs, BackwardPairs<C, kGroup>, BackwardWeights<C, kGroup>>;
  using Base::a, Base::sm, Base::warp, Base::lane, Base::dk, Base::dv;
  using Base::Base;
  using Element = typename C::Element;
  static constexpr int kWidth = C::kWidth, kQueries = C::kQueries;
  template <int kColumns>
  using Product = hopper::Product<Element, kColumns>;

  // acc = rows of this warpgroup (k or v) times a block of queries (q or dcontext), transposed.
  __device__ void against(float (&acc)[kQueries / 2], std::uint32_t keys, std::uint32_t queries) {
    const std::uint64_t x = hopper::operand(keys + kGroup * 8192, 0);
    const std::uint64_t y = hopper::operand(queries, 0);
#pragma unroll
    for (int i = 0; i < kWidth / 16; ++i) {
      Product<kQueries>::template from_shared<0>(acc, x + i / 4 * 1024 + i % 4 * 2,
                                                 y + i / 4 * (kQueries * 8) + i % 4 * 2, i > 0);
    }
    hopper::products_commit();
  }
  // acc += w x, w: [64 keys, kQueries], x: [kQueries, width]
  __device__ void accumulate(float (&acc)[kWidth / 2], const std::uint32_t (&w)[kQueries / 4],
                             std::uint32_t queries) {
    const std::uint64_t y = hopper::operand(queries, kQueries * 128);
#pragma unroll
    for (int i = 0; i < kQueries / 16; ++i) {
      Product<kWidth>::template from_registers<1>(acc, w + 4 * i, y + i * 128, 1);
    }
    hopper::products_commit();
  }
  // dSᵀ [kQueries/64][128 keys][64 queries], swizzled, where both warpgroups read it.
  __device__ void publish(const std::uint32_t (&dS)[kQueries / 4], std::uint32_t to) {
    const int row = kGroup * 64 + warp * 16 + lane % 16;
#pragma unroll
    for (int i = 0; i < kQueries / 16; ++i) {
      const int chunk = (2 * i + lane / 16) % 8;
      const std::uint32_t w[4] = {dS[4 * i], dS[4 * i + 1], dS[4 * i + 2], dS[4 * i + 3]};
      hopper::store_fragments(to + i / 4 * 16384 + row * 128 + (chunk ^ (row % 8)) * 16, w);
    }
    hopper::fence_async();
  }
  // Of width 128 this warpgroup's 64 columns; of width 64 its 64 queries.
  __device__ void query_gradient(float (&dq)[32], std::uint32_t ds) {
    const std::uint64_t x = hopper::operand(ds + (kWidth == 64 ? kGroup * 16384 : 0), 0);
    const std::uint64_t y = hopper::operand(sm.k() + (kWidth == 128 ? kGroup * 16384 : 0), 0);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      Product<64>::template from_shared<1>(dq, x + i * 128, y + i * 128, i > 0);
    }
    hopper::products_commit();
  }
  // dq is kept in the order of accumulators: a warp writes 512 bytes that are neighbours.
  __device__ void hand_over(const float (&dq)[32], int i, int number) {
    const int thread = static_cast<int>(threadIdx.x) % 128;
    if constexpr (C::kTurns) {
      hopper::barrier_wait(sm.dq_free(i % 2), (i / 2 & 1) ^ 1);
      const std::uint32_t at = sm.dq(i % 2) + kGroup * (C::kDqBytes / 2) + thread * 16;
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        hopper::put_four(at + n * 2048, dq[4 * n], dq[4 * n + 1], dq[4 * n + 2], dq[4 * n + 3]);
      }
      hopper::fence_async();
      __syncwarp();
      hopper::warp_arrive(sm.dq_full(i % 2), lane);
    } else {
      float* const at =
          a.dq + std::int64_t{number} * kDqBlock + kGroup * (kDqBlock / 2) + thread * 4;
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        hopper::add_four(at + n * 512, dq[4 * n], dq[4 * n + 1], dq[4 * n + 2], dq[4 * n + 3]);
      }
    }
  }

  __device__ void run() {
    int used = 0;  // blocks so far
    for (int round = 0;; ++round) {
      hopper::barrier_wait(sm.k_full(), round & 1);
      if (threadIdx.x % 128 == 0) hopper::stores_wait_read();  // dk of the tile before
      const BackwardTile tile = get_warps_tile(sm.tile());
      if (tile.count < 0) return;
      used = run_tile(tile, used);
    }
  }
  __device__ int run_tile(const BackwardTile& tile, int used) {
    float S[kQueries / 2], dP[kQueries / 2], dq[32];
#pragma unroll
    for (int i = 0; i < kWidth / 2; ++i) dk[i] = dv[i] = 0;
    if (C::kSpans && tile.count > 0) {
      this->clear_unwritten_keys(tile, sm.dcontext_full(used % 2), used / 2 & 1);
    }
    const BackwardMask mask = backward_mask<C>(a, tile);
    BackwardWalk<C> walk(a, tile);
    const int end = used + walk.steps;
    for (int i = used; i < end; ++i, walk.next()) {
      const int s = i % 2;
      std::uint32_t P[kQueries / 4], dS[kQueries / 4];
      const int query = walk.block * kQueries;
      hopper::barrier_wait(sm.q_full(s), i / 2 & 1);
      if (C::kSpans && walk.block >= mask.unwritten) {
        hopper::barrier_wait(sm.dcontext_full(s), i / 2 & 1);
        this->clear_unwritten_queries(tile, walk.block, s);
      }
      hopper::products_fence();
      against(S, sm.k(), sm.q(s));
      if constexpr (C::kPairs) {  // one after the other: registers are needed for what pairs are
                                  // told
        std::uint32_t dropped;
        hopper::products_wait<0>();
        hopper::tie(S);
        this->pair_weights(S, P, dropped, tile, walk.head, query, s);
        hopper::tie(S);
        hopper::tie(P);
        hopper::barrier_wait(sm.dcontext_full(s), i / 2 & 1);
        hopper::products_fence();
        accumulate(dv, P, sm.dcontext(s));
        hopper::products_wait<0>();
        hopper::tie(dv);
        hopper::products_fence();
        against(dP, sm.v(), sm.dcontext(s));
        hopper::products_wait<0>();
        hopper::tie(dP);
        this->pair_gradient(S, dP, dS, dropped, s);
      } else {
        hopper::barrier_wait(sm.dcontext_full(s), i / 2 & 1);
        hopper::products_fence();
        against(dP, sm.v(), sm.dcontext(s));
        typename Base::Kept kept;
        this->draw(kept, tile, walk.head, query);
        hopper::products_wait<1>();
        hopper::tie(S);
        this->finish_weights(S, kept, tile, walk.head, query, walk.number, mask.hides(walk.block),
                             s);
        hopper::products_wait<0>();
        hopper::tie(dP);
        this->score_gradient(S, dP, P, dS, kept, s);
      }
      publish(dS, sm.ds(s));
      if (!C::kPairs) hopper::tie(P);
      hopper::tie(dS);
      // Both must have published dS before either starts dq. Without spans warpgroup 0 runs its
      // other products before that barrier and warpgroup 1 after it, so that one's exponentials
      // fall on the other's products (4 % faster; with a causal mask 2 to 5 % slower).
      if constexpr (kGroup == 0 && !C::kSpans) {
        hopper::products_fence();
        accumulate(dv, P, sm.dcontext(s));
        accumulate(dk, dS, sm.q(s));
        hopper::threads_sync(1, 256);
        query_gradient(dq, sm.ds(s));
        hopper::products_wait<0>();
        hopper::tie(dv);
        hopper::tie(dk);
        hopper::tie(dq);
        hand_over(dq, i, walk.number);
      } else {
        hopper::threads_sync(1, 256);
        hopper::products_fence();
        query_gradient(dq, sm.ds(s));
        if constexpr (!C::kPairs) accumulate(dv, P, sm.dcontext(s));
        accumulate(dk, dS, sm.q(s));
        hopper::products_wait<C::kPairs ? 1 : 2>();
        hopper::tie(dq);
        hand_over(dq, i, walk.number);
        hopper::products_wait<0>();
        if (!C::kPairs) hopper::tie(dv);
        hopper::tie(dk);
      }
      __syncwarp();  // every lane has read its rows' numbers
      hopper::warp_arrive(sm.q_free(s), lane);
    }
    // Again, and not kept in registers: behind the barrier the next tile may be told.
    const BackwardTile same = get_warps_tile(sm.tile());
    hopper::threads_sync(1, 256);  // k and v are read no more
    float grown = 1;
    if ((C::kPairs && a.pairs.dropout.threshold != 0) || C::kDropout) {
      grown = static_cast<float>(a.pairs.dropout.grown);
    }
    this->store(C::kDropout ? a.scale * grown : a.scale, grown, same, end);
    return end;
  }
};

template <typename C>
__global__ void __launch_bounds__(C::kThreads, 1)
    attend_backward(const __grid_constant__ HopperBackward a) {
  extern __shared__ __align__(1024) unsigned char raw[];  // as the swizzle needs it
  const BackwardShared<C> sm{hopper::shared_address(raw)};
  if (threadIdx.x == 0) {
    hopper::barrier_init(sm.k_full(), 1);
    hopper::barrier_init(sm.k_free(), 2 * hopper::kGroupArrivals + C::kWriters);
    hopper::barrier_init(sm.v_free(), 2 * hopper::kGroupArrivals);
    for (int s = 0; s < 2; ++s) {
      hopper::barrier_init(sm.q_full(s), 1);
      hopper::barrier_init(sm.dcontext_full(s), 1);
      hopper::barrier_init(sm.q_free(s), 8 * hopper::kWarpArrivals);
      hopper::barrier_init(sm.dq_full(s), 8 * hopper::kWarpArrivals);
      hopper::barrier_init(sm.dq_free(s), 1);
    }
    hopper::fence_barrier_init();
  }
  if (C::kDropout && threadIdx.x < 32) {
    SharedKeys{sm.round_keys()}.put(a.pairs, static_cast<int>(threadIdx.x));
  }
  __syncthreads();
  const int role = __shfl_sync(~0u, threadIdx.x / 128, 0);
  if (role == 0) {
    hopper::registers_down<C::kProducerRegisters>();
    const int warp = static_cast<int>(threadIdx.x / 32);
    if (threadIdx.x == 0) load_tiles<C>(a, sm);
    if constexpr (C::kTurns) {
      if (warp > 0 && warp <= C::kWriters && threadIdx.x % 32 == 0) {
        add_tiles_by_turns<C>(a, sm, warp - 1);
      }
    }
  } else {
    hopper::registers_up<C::kConsumerRegisters>();
    if (role == 1) {
      BackwardConsumer<C, 0>(a, sm).run();
    } else {
      BackwardConsumer<C, 1>(a, sm).run();
    }
  }
}

}  // namespace cephalo::kernels::cuda
