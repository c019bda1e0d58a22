// The forward pass on Hopper: context = softmax(scale · q kᵀ) v in one pass over k and v.
//
// A block owns 64 query rows of one head for each of its warpgroups. One producer warp keeps the
// copy engine busy. A warpgroup's step for key block j (right to left, so that a causal diagonal
// comes first):
//
//     issue  S  = q k_jᵀ           (tensor cores, asynchronous)
//     issue  O += P_{j−1} v_{j−1}  (tensor cores, asynchronous)
//     wait for S;   P_j = exp2(scale · S − m)   under the second product, and under those of the
//     wait for O                                other warpgroups, which take turns
//
// What is hidden is selected, never multiplied, in S and P. In O a hidden row of v meets a weight
// of 0, and 0 · NaN is NaN: rows that come out not finite are listed for a kernel that looks at
// pairs.
#pragma once

#include "cephalo/kernels/cuda/forward_pairs.cuh"
#include "cephalo/kernels/cuda/forward_producer.cuh"
#include "cephalo/kernels/cuda/forward_store.cuh"

namespace cephalo::kernels::cuda {

// ---- a consumer: one warpgroup, 64 query rows ---------------------------------------------------
template <typename C>
struct ForwardConsumer : ForwardStore<C> {
  using Base = ForwardStore<C>;
  using Base::a, Base::sm, Base::group, Base::lane, Base::x, Base::O, Base::S, Base::m, Base::sum;
  using Base::Base;
  using Element = typename C::Element;
  using RowBits = typename Base::RowBits;
  static constexpr int kWidth = C::kWidth, kVWidth = C::kVWidth, kKeys = C::kKeys;
  static constexpr int kParts = C::kParts, kPWords = kParts * kKeys / 4;
  // What a block adds to O, where there are several parts: the tensor cores round towards 0, which
  // over thousands of keys would be far more than what float32 loses. Else O itself.
  float own_sums[kParts > 1 ? kVWidth / 2 : 1];

  __device__ float (&sums())[kVWidth / 2] {
    if constexpr (kParts > 1) {
      return own_sums;
    } else {
      return O;
    }
  }
  __device__ void scores(int stage) {  // S = q kᵀ, in flight
    std::uint64_t k = hopper::operand(sm.k(stage), 0), q = hopper::operand(sm.q(x), 0);
    if (kParts > 1) {  // or every sum with them is kept for the next block
      q = hopper::ready(q);
      k = hopper::ready(k);
    }
#pragma unroll
    for (int n = 0; n < part_pairs(kParts); ++n) {
      const PartPair parts = part_pair<kParts>(n);
#pragma unroll
      for (int i = 0; i < kWidth / 16; ++i) {
        const int at = i % 4 * 2;  // 32 bytes along the row, in units of 16
        const int q_plane = parts.left * (kWidth / 64) + i / 4;
        const int k_plane = parts.right * (kWidth / 64) + i / 4;
        hopper::Product<Element, kKeys>::from_shared(S, q + q_plane * 512 + at,
                                                     k + k_plane * (kKeys * 8) + at, n + i > 0);
      }
    }
    hopper::products_commit();
  }
  template <bool kTurns>
  __device__ void values(const std::uint32_t (&P)[kPWords], int stage) {  // O += P v, in flight
    const std::uint64_t v = hopper::operand(sm.v(stage), kKeys * 128);
#pragma unroll
    for (int n = 0; n < part_pairs(kParts); ++n) {
      const PartPair parts = part_pair<kParts>(n);
#pragma unroll
      for (int i = 0; i < kKeys / 16; ++i) {
        if (kTurns && n * (kKeys / 16) + i == C::kHandOff) {
          hopper::threads_arrive(1 + (group + 1) % C::kGroups, 256);
        }
        hopper::Product<Element, kVWidth>::template from_registers<1>(
            sums(), P + parts.left * (kKeys / 4) + 4 * i,
            v + parts.right * (kVWidth / 64) * (kKeys * 8) + i * 128, kParts == 1 || n + i > 0);
      }
    }
    hopper::products_commit();
  }
  __device__ void take_values() {  // values are there
    hopper::tie(sums());
    if constexpr (kParts > 1) {
#pragma unroll
      for (int e = 0; e < kVWidth / 2; ++e) O[e] += own_sums[e];
    }
  }
  __device__ void pack_weights(std::uint32_t (&P)[kPWords]) const {  // S, which holds them
#pragma unroll
    for (int n = 0; n < kKeys / 4; ++n) {
      put_parts<kParts, kKeys / 4>(Element{}, S[2 * n], S[2 * n + 1], n, P);
    }
  }
  __device__ void release(std::uint32_t barrier) {  // this warp no longer reads the stage
    hopper::warp_arrive(barrier, lane);
  }
  __device__ void wait_k(int i) {
    hopper::barrier_wait(sm.k_full(i % C::kStages), i / C::kStages & 1);
    if constexpr (C::kBias) {
      hopper::barrier_wait(sm.bias_full(i % C::kBiasStages), i / C::kBiasStages & 1);
    }
  }
  __device__ void wait_v(int i) {
    hopper::barrier_wait(sm.v_full(i % C::kStages), i / C::kStages & 1);
  }
  struct NoPairs {};
  using Pairs = std::conditional_t<C::kPairs, PairSoftmax<C>, NoPairs>;
  __device__ Pairs pair_softmax(const ForwardTile& tile) const {
    if constexpr (C::kPairs) {
      const int first = tile.row + group * 64;
      return {a, tile, first, first + this->row_of_thread(0), lane, {}, 0, 0};
    } else {
      return {};
    }
  }

  __device__ static int key_of(const ForwardTile& tile, int j) {  // the first of block j
    return tile.first_key + (tile.blocks - 1 - j) * kKeys;
  }

  // Block i (counted over all tiles), with P of block i − 1; k_i and v_{i−1} have arrived.
  template <bool kMasked>
  __device__ void step(std::uint32_t (&P)[kPWords], int i, const ForwardTile& tile, int key,
                       bool more) {
    const int now = i % C::kStages, old = (i - 1) % C::kStages;
    const std::uint32_t k_free = hopper::ready(sm.k_free(now));
    const std::uint32_t v_free = hopper::ready(sm.v_free(old));
    hopper::threads_sync(1 + group, 256);
    hopper::products_fence();
    scores(now);
    values<true>(P, old);
    [[maybe_unused]] Pairs pairs = pair_softmax(tile);
    if constexpr (C::kPairs) pairs.look(key);
    hopper::products_wait<1>();
    hopper::tie(S);
    release(k_free);
    float shrink[2], below[2];
    std::uint32_t T[kPWords];                 // not P yet: the running product still reads P
    constexpr bool kPackedLate = kParts > 1;  // where there are no registers for T
    RowBits raised;
    if constexpr (C::kPairs) {
      raised = {{~0u, ~0u}};
      pairs.block(key, S, m, sum, shrink);
      if constexpr (!kPackedLate) pack_weights(T);
    } else {
      this->template finish_scores<kMasked>(i, tile, key, below);
      // Draws between exponentials leave no registers for scores that may be needed again.
      constexpr bool kLooksFirst = kMasked || C::kDropout;
      if constexpr (kLooksFirst) {
        raised = this->masked_block(T, shrink);
      } else if (C::kWatches && this->watches_any()) {
        raised = this->watched_block(T, shrink);
      } else {
        raised = this->clean_block(T, shrink, below);
      }
      this->next_draws();
    }
    if constexpr (kPackedLate) {
      hopper::tie(S);
    } else {
      hopper::tie(T);
    }
    // The tie above and this loop keep both compilers from moving the exponentials behind the wait.
    if (more) wait_k(i + 1);
    wait_v(i);
    hopper::products_wait<0>();
    take_values();
    release(v_free);
    if (raised.any()) this->shrink_past(shrink);
    if constexpr (kPackedLate) {
      pack_weights(P);
    } else {
#pragma unroll
      for (int e = 0; e < kPWords; ++e) asm volatile("mov.b32 %0, %1;" : "=r"(P[e]) : "r"(T[e]));
    }
  }

  // Block j of the tile, the first that this warpgroup's rows see, which is block i of all tiles;
  // returns which of the tile's blocks hide nothing. What rows see is asked for while scores are
  // computed: it is far away in memory.
  __device__ IndexSpan start(std::uint32_t (&P)[kPWords], int i, const ForwardTile& tile, int j) {
    const int stage = i % C::kStages, key = key_of(tile, j);
    wait_k(i);
    hopper::products_fence();
    scores(stage);
    [[maybe_unused]] Pairs pairs = pair_softmax(tile);
    if constexpr (C::kPairs) pairs.look(key);
    this->begin_tile(tile);
    const IndexSpan clean = this->clean_blocks(tile);
    this->draw_first(tile, key);
    hopper::products_wait<0>();
    hopper::tie(S);
    release(sm.k_free(stage));
    if constexpr (C::kPairs) {
      float shrink[2];
      m[0] = m[1] = -CUDART_INF_F;
      sum[0] = sum[1] = 0;
      pairs.block(key, S, m, sum, shrink);
      pack_weights(P);
    } else {
      if constexpr (C::kOneThing) {
        float below[2];
        this->template finish_scores<true>(i, tile, key, below);
      } else if (j < clean.begin || j >= clean.end) {
        this->hide(tile, key);
      }
      this->first_block(P);
      this->watch_nobody();
      this->next_draws();
    }
#pragma unroll
    for (int e = 0; e < kVWidth / 2; ++e) O[e] = 0;
    return clean;
  }

  // Keys behind a sequence's end are often memory that nobody has written: their rows of v become
  // 0. All warpgroups do it together, at the same block of the same tile.
  __device__ void clear_unwritten(int stage, int key, int kv_len) {
    const int first = max(0, kv_len - key);
    // Told here, and not kept in registers from the kernel's beginning on.
    const int thread = static_cast<int>(hopper::ready(threadIdx.x - 128));
    constexpr int kChunks = kParts * kVWidth / 8;  // of a row
    for (int n = thread; n < (kKeys - first) * kChunks; n += 128 * C::kGroups) {
      const int row = first + n / kChunks, chunk = n % kChunks;
      const std::uint32_t at = sm.v(stage) + chunk / 8 * (kKeys * 128) + row * 128 + chunk % 8 * 16;
      asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(at), "r"(0) : "memory");
    }
    hopper::fence_async();
    hopper::threads_sync(7, 128 * C::kGroups);
  }

  // What nobody has written is at the end of a sequence, and so in the tile's first block.
  __device__ void clear_if_unwritten(const ForwardTile& tile, int i) {
    if constexpr (C::kSpans) {
      const int kv_len = shortened(a.rules[tile.batch * a.rule_stride].kv_len);
      if (kv_len < min(key_of(tile, 0) + kKeys, a.kv_tokens)) {
        clear_unwritten(i % C::kStages, key_of(tile, 0), kv_len);
      }
    }
  }
  // Those of a tile's blocks that any row of this warpgroup sees, or one.
  __device__ IndexSpan own_blocks(const ForwardTile& tile) const {
    if (!C::kPassesBy) return {0, tile.blocks};
    const int passed_by = __shfl_sync(~0u, hopper::get_shared(sm.tile(x) + kPassedByAt), 0);
    return {passed_by & 0xFFFF, tile.blocks - (passed_by >> 16)};
  }
  __device__ void pass_turn() {
    hopper::threads_sync(1 + group, 256);
    hopper::threads_arrive(1 + (group + 1) % C::kGroups, 256);
  }
  // Block j of a tile, of which no row of this warpgroup sees a key: handed back, once all lanes
  // know that it is there, and the turn is passed on. Only before the first block, which all may
  // have to clear together, do others have to wait for that.
  __device__ void pass_by(const ForwardTile& tile, int used, int j) {
    static_assert(!C::kBias, "whose blocks are handed back as well");
    const int i = used + j;
    if (j > 0) pass_turn();
    wait_k(i);
    __syncwarp();
    release(sm.k_free(i % C::kStages));
    wait_v(i);
    if (j == 0) clear_if_unwritten(tile, i);
    __syncwarp();
    release(sm.v_free(i % C::kStages));
    if (j == 0) pass_turn();
  }

  __device__ void run_tile(const ForwardTile& tile, int used) {
    std::uint32_t P[kPWords];
    const IndexSpan own = own_blocks(tile);
    int j = 0;
    if constexpr (C::kPassesBy) {
      for (; j < own.begin; ++j) pass_by(tile, used, j);
    }
    const IndexSpan clean = start(P, used + j, tile, j);
    const int masked_end = min(clean.begin, own.end);
    if (j + 1 < own.end) wait_k(used + j + 1);
    wait_v(used + j);
    if (j == 0) clear_if_unwritten(tile, used);
    for (++j; j < masked_end; ++j) {
      step<true>(P, used + j, tile, key_of(tile, j), j + 1 < own.end);
    }
    if constexpr (!C::kPairs) {
      const int clean_end = C::kPassesBy ? min(clean.end, own.end) : clean.end;
      for (; j < clean_end; ++j) {
        step<false>(P, used + j, tile, C::kOneThing ? key_of(tile, j) : 0, j + 1 < own.end);
      }
    }
    if constexpr (C::kSpans && !C::kPairs) {  // a window hides on the left as well
      for (; j < own.end; ++j) {
        step<true>(P, used + j, tile, key_of(tile, j), j + 1 < own.end);
      }
    }
    const int last = (used + own.end - 1) % C::kStages;
    hopper::products_fence();
    values<false>(P, last);
    hopper::products_wait<0>();
    take_values();
    release(sm.v_free(last));
    if constexpr (C::kPassesBy) {
      for (; j < tile.blocks; ++j) pass_by(tile, used, j);
    }
    this->store(tile);
  }

  __device__ void run() {
    int used = 0;                                                 // blocks of keys so far
    if (group == C::kGroups - 1) hopper::threads_arrive(1, 256);  // warpgroup 0 goes first
    for (int round = 0;; ++round) {
      x = round % C::kQBuffers * C::kGroups + group;
      hopper::barrier_wait(sm.q_full(x), round / C::kQBuffers & 1);
      const ForwardTile tile = get_tile_of_warp(sm.tile(x));
      if (tile.blocks < 1) break;
      run_tile(tile, used);
      used += tile.blocks;
    }
  }
};

template <typename C>
__global__ void __launch_bounds__(C::kThreads, 1)
    attend_forward(const __grid_constant__ HopperForward a) {
  extern __shared__ __align__(1024) unsigned char raw[];  // as the swizzle needs it
  const ForwardShared<C> sm{hopper::shared_address(raw)};
  if (threadIdx.x == 0) {
    for (int s = 0; s < C::kStages; ++s) {
      hopper::barrier_init(sm.k_full(s), 1);
      hopper::barrier_init(sm.v_full(s), 1);
      hopper::barrier_init(sm.k_free(s), 4 * C::kGroups * hopper::kWarpArrivals);
      hopper::barrier_init(sm.v_free(s), 4 * C::kGroups * hopper::kWarpArrivals);
    }
    for (int s = 0; C::kBias && s < C::kBiasStages; ++s) {
      hopper::barrier_init(sm.bias_full(s), 1);
      hopper::barrier_init(sm.bias_free(s), 4 * C::kGroups * hopper::kWarpArrivals);
    }
    for (int x = 0; x < C::kGroups * C::kQBuffers; ++x) {
      hopper::barrier_init(sm.q_full(x), 1);
      hopper::barrier_init(sm.q_free(x), hopper::kGroupArrivals);
    }
    hopper::barrier_init(sm.plan_full(), 1);
    hopper::barrier_init(sm.plan_free(), 1);
    hopper::fence_barrier_init();
  }
  __syncthreads();
  // The shuffle tells the compiler that a warp agrees on it.
  const int role = __shfl_sync(~0u, threadIdx.x / 128, 0);
  if (role == 0) {
    hopper::registers_down<C::kProducerRegisters>();
    if (threadIdx.x == 0) ForwardProducer<C>{a, sm}.run();
    if (threadIdx.x == 32) {
      hopper::next_kernel_may_start();
      plan_tiles<C>(a, sm);
    }
  } else {
    hopper::registers_up<C::kConsumerRegisters>();
    ForwardConsumer<C>(a, sm, role).run();
  }
}

}  // namespace cephalo::kernels::cuda
