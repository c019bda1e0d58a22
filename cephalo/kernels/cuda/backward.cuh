// The backward pass on Hopper. A block owns 128 keys of one key head and walks over the queries
// that see them:
//
//     Sᵀ = k qᵀ,          Pᵀ = exp2(scale · Sᵀ − lse)      rows are keys, so Pᵀ and dSᵀ come out of
//     dPᵀ = v dcontextᵀ,  dSᵀ = Pᵀ (dPᵀ − delta)           the tensor cores in the very layout in
//     dv += Pᵀ dcontext,  dk += dSᵀ q                      which these two products take them
//     dq += dS k                                           needs dS of both warpgroups: the one
//                                                          exchange through shared memory
//
// Two consumer warpgroups own 64 keys each. dq is summed in float32 in the L2. By turns: a warp of
// its own adds a block of queries once all tiles before have done so, and passes the turn when its
// sums are there; tiles wait for tiles with lower tickets alone, which are running or done. In any
// order: warpgroups add from their registers.
#pragma once

#include <math_constants.h>

#include "cephalo/kernels/cuda/backward_plan.cuh"
#include "cephalo/kernels/cuda/tile_pairs.cuh"

namespace cephalo::kernels::cuda {

// ---- the producer: one thread -------------------------------------------------------------------
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
    hopper::barrier_expect(sm.q_full(s), C::kQBytes + (C::kPairs ? 2 : 1) * C::kRowBytes);
    hopper::box_load(sm.q(s), &a.q, sm.q_full(s), queries);
    hopper::bytes_load(sm.lse(s), a.lse2 + row, C::kRowBytes, sm.q_full(s));
    if (C::kPairs) hopper::bytes_load(sm.share(s), a.share2 + row, C::kRowBytes, sm.q_full(s));
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

// ---- a consumer: one warpgroup, 64 keys ---------------------------------------------------------
template <typename C, int kGroup>
struct BackwardConsumer {
  using Element = typename C::Element;
  static constexpr int kWidth = C::kWidth, kQueries = C::kQueries;
  template <int kColumns>
  using Product = hopper::Product<Element, kColumns>;

  const HopperBackward& a;
  BackwardShared<C> sm;
  const int warp, lane;
  float dk[kWidth / 2], dv[kWidth / 2];

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
  __device__ void weights(float (&S)[kQueries / 2], int s) {  // S becomes P = exp2(scale S − lse)
    const float scale = a.scale * 1.44269504F;
#pragma unroll
    for (int j = 0; j < kQueries / 8; ++j) {
      float lse[2];
      hopper::get_two(sm.lse(s) + 4 * (8 * j + 2 * (lane % 4)), lse);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        S[4 * j + e] = hopper::exp2_approx(fmaf(S[4 * j + e], scale, -lse[e % 2]));
      }
    }
  }
  // No weight for a key outside of the query's span. key, query: of this thread's first element.
  __device__ void hide(float (&S)[kQueries / 2], const BackwardTile& tile, int key, int query) {
    ShortRule rule{};
    if (C::kSpans) rule = short_rule(a.rules[tile.batch * a.rule_stride]);
#pragma unroll
    for (int j = 0; j < kQueries / 4; ++j) {  // queries of this thread
      const int i = query + j / 2 * 8 + j % 2;
      int begin = 0, end = a.kv_tokens;
      if (C::kSpans) {
        begin = rule.begin(i);
        end = i < rule.q_len ? max(begin, rule.end(i)) : begin;
      }
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const unsigned at = static_cast<unsigned>(key + 8 * r - begin);
        if (at >= static_cast<unsigned>(end - begin)) S[j / 2 * 4 + 2 * r + j % 2] = 0;
      }
    }
  }
  __device__ void score_gradient(const float (&S)[kQueries / 2], const float (&dP)[kQueries / 2],
                                 std::uint32_t (&P)[kQueries / 4],
                                 std::uint32_t (&dS)[kQueries / 4], int s) {
#pragma unroll
    for (int j = 0; j < kQueries / 8; ++j) {
      float delta[2];
      hopper::get_two(sm.delta(s) + 4 * (8 * j + 2 * (lane % 4)), delta);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float low = S[4 * j + 2 * r], high = S[4 * j + 2 * r + 1];
        P[2 * j + r] = hopper::pack(Element{}, low, high);
        dS[2 * j + r] = hopper::pack(Element{}, low * (dP[4 * j + 2 * r] - delta[0]),
                                     high * (dP[4 * j + 2 * r + 1] - delta[1]));
      }
    }
  }

  // ---- kernels that look at pairs ----
  // S becomes dscore / (dP − delta), P the weights that v was multiplied by; dropped: bits of those
  // that are 0 by chance.
  __device__ void pair_weights(float (&S)[kQueries / 2], std::uint32_t (&P)[kQueries / 4],
                               std::uint32_t& dropped, const BackwardTile& tile, int head,
                               int query, int s) {
    const ShortRule rule = short_rule(a.rules[tile.batch * a.rule_stride]);
    const int key = tile.key + kGroup * 64;
    const TilePairs<RowsOfKeys> pairs{a.pairs,
                                      a.q_tokens,
                                      a.kv_tokens,
                                      rule,
                                      tile.batch,
                                      head,
                                      query,
                                      key,
                                      query + 2 * (lane % 4),
                                      key + warp * 16 + lane / 4,
                                      lane};
    const auto known = pairs.known();
    dropped = 0;
#pragma unroll
    for (int g = 0; g < kQueries / 8; ++g) {
      float added[4];  // and only then what else a group needs: registers are few
      const std::uint32_t hidden = pairs.look(4 * g, known, added);
      const std::uint32_t drops = pairs.dropped(g);
      float shift[2], share[2], x[4], slope[4] = {1, 1, 1, 1};
#pragma unroll
      for (int c = 0; c < 4; ++c) x[c] = S[4 * g + c] * a.scale;
      if (a.pairs.softcap != 0.0F) {
        cap_scores(a.pairs.softcap, x, [&](int c, float of) { slope[c] = of; });
      }
      hopper::get_two(sm.lse(s) + 4 * (8 * g + 2 * (lane % 4)), shift);
      hopper::get_two(sm.share(s) + 4 * (8 * g + 2 * (lane % 4)), share);
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const float above = x[c] + added[c] - shift[c % 2];
        const float weight = hopper::exp2_approx(fmaf(above, kLog2e, share[c % 2]));
        x[c] = hidden >> c & 1U ? 0.0F : weight;
        S[4 * g + c] = x[c] * slope[c];
      }
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        P[2 * g + r] = hopper::pack(Element{}, drops >> 2 * r & 1U ? 0.0F : x[2 * r],
                                    drops >> (2 * r + 1) & 1U ? 0.0F : x[2 * r + 1]);
      }
      dropped |= drops << 4 * g;
    }
  }
  // A pair without weight has no gradient, whatever its product is.
  __device__ void pair_gradient(const float (&S)[kQueries / 2], const float (&dP)[kQueries / 2],
                                std::uint32_t (&dS)[kQueries / 4], std::uint32_t dropped, int s) {
    const float grown =
        a.pairs.dropout.threshold != 0 ? static_cast<float>(a.pairs.dropout.grown) : 1.0F;
#pragma unroll
    for (int j = 0; j < kQueries / 8; ++j) {
      float delta[2];
      hopper::get_two(sm.delta(s) + 4 * (8 * j + 2 * (lane % 4)), delta);
#pragma unroll
      for (int e = 4 * j; e < 4 * j + 4; e += 2) {
        float ds[2];
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const float back = dropped >> (e + c) & 1U ? 0.0F : dP[e + c] * grown;
          ds[c] = S[e + c] == 0.0F ? 0.0F : S[e + c] * (back - delta[c]);
        }
        dS[e / 2] = hopper::pack(Element{}, ds[0], ds[1]);
      }
    }
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
  __device__ void hand_over(const float (&dq)[32], int i, float* to) {
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
      if (lane == 0) hopper::barrier_arrive(sm.dq_full(i % 2));
    } else {
      float* const at = to + kGroup * (kDqBlock / 2) + thread * 4;
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        hopper::add_four(at + n * 512, dq[4 * n], dq[4 * n + 1], dq[4 * n + 2], dq[4 * n + 3]);
      }
    }
  }

  // Rows past a sequence's end are often memory that nobody has written; weights of 0 do not help
  // against NaN. rows: [width/64][count][64] from row `first` on
  __device__ void clear_rows(std::uint32_t rows, int count, int first) {
    for (int n = static_cast<int>(threadIdx.x) % 128; n < (count - first) * (kWidth / 8);
         n += 128) {
      const int row = first + n / (kWidth / 8), chunk = n % (kWidth / 8);
      const std::uint32_t at = rows + chunk / 8 * (count * 128) + row * 128 + chunk % 8 * 16;
      hopper::put_four(at, 0, 0, 0, 0);
    }
  }
  __device__ void clear_unwritten_keys(const BackwardTile& tile) {
    const int kv_len = shortened(a.rules[tile.batch * a.rule_stride].kv_len);
    if (kv_len >= min(tile.key + C::kKeys, a.kv_tokens)) return;
    clear_rows(sm.k(), C::kKeys, max(0, kv_len - tile.key));
    clear_rows(sm.v(), C::kKeys, max(0, kv_len - tile.key));
    hopper::fence_async();
    hopper::threads_sync(1, 256);
  }
  __device__ void clear_unwritten_queries(const BackwardTile& tile, int block, int s) {
    const int q_len = shortened(a.rules[tile.batch * a.rule_stride].q_len);
    clear_rows(sm.q(s), kQueries, max(0, q_len - block * kQueries));
    clear_rows(sm.dcontext(s), kQueries, max(0, q_len - block * kQueries));
    hopper::fence_async();
    hopper::threads_sync(1, 256);
  }

  // acc · factor as rows of keys; those that are not finite are listed.
  __device__ void store(const float (&acc)[kWidth / 2], float factor, std::uint32_t via,
                        const TensorMap* map, const BackwardTile& tile) {
    const int row = warp * 16 + lane % 16;
    float wrong[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < kWidth / 16; ++i) {
      std::uint32_t w[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float low = acc[8 * i + 2 * e] * factor, high = acc[8 * i + 2 * e + 1] * factor;
        wrong[e % 2] = fmaf(low, 0.0F, fmaf(high, 0.0F, wrong[e % 2]));
        w[e] = hopper::pack(Element{}, low, high);
      }
      const int chunk = (2 * i + lane / 16) % 8;
      hopper::store_fragments(via + i / 4 * 8192 + row * 128 + (chunk ^ (row % 8)) * 16, w);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const unsigned found = __ballot_sync(~0u, wrong[r] != 0.0F);
      const int key = tile.key + kGroup * 64 + warp * 16 + lane / 4 + 8 * r;
      if (lane % 4 == 0 && (found >> lane & 15u) != 0 && key < a.kv_tokens) {
        a.careful_rows[atomicAdd(a.careful, 1u)] =
            static_cast<unsigned>((tile.batch * a.num_kv_heads + tile.kv_head) * a.kv_tokens + key);
      }
    }
    hopper::fence_async();
    hopper::threads_sync(2 + kGroup, 128);
    if (threadIdx.x % 128 == 0) {
      hopper::box_store(map, via, {tile.key + kGroup * 64, tile.kv_head, tile.batch});
      hopper::stores_wait_read();
    }
  }

  __device__ void run(const BackwardTile& tile) {
    float S[kQueries / 2], dP[kQueries / 2], dq[32];
#pragma unroll
    for (int i = 0; i < kWidth / 2; ++i) dk[i] = dv[i] = 0;
    hopper::barrier_wait(sm.kv_full(), 0);
    if (C::kSpans) clear_unwritten_keys(tile);
    const BackwardMask mask = backward_mask<C>(a, tile);
    BackwardWalk<C> walk(a, tile);
    for (int i = 0; i < walk.steps; ++i, walk.next()) {
      const int s = i % 2;
      std::uint32_t P[kQueries / 4], dS[kQueries / 4];
      hopper::barrier_wait(sm.q_full(s), i / 2 & 1);
      if (C::kSpans && walk.block >= mask.unwritten) {
        hopper::barrier_wait(sm.dcontext_full(s), i / 2 & 1);
        clear_unwritten_queries(tile, walk.block, s);
      }
      hopper::products_fence();
      against(S, sm.k(), sm.q(s));
      if constexpr (C::kPairs) {  // one after the other: registers are needed for what pairs are
                                  // told
        std::uint32_t dropped;
        hopper::products_wait<0>();
        hopper::tie(S);
        pair_weights(S, P, dropped, tile, walk.head, walk.block * kQueries, s);
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
        pair_gradient(S, dP, dS, dropped, s);
      } else {
        hopper::barrier_wait(sm.dcontext_full(s), i / 2 & 1);
        hopper::products_fence();
        against(dP, sm.v(), sm.dcontext(s));
        hopper::products_wait<1>();
        hopper::tie(S);
        weights(S, s);
        hopper::tie(S);
        if (mask.hides(walk.block)) {
          hide(S, tile, tile.key + kGroup * 64 + warp * 16 + lane / 4,
               walk.block * kQueries + 2 * (lane % 4));
        }
        hopper::products_wait<0>();
        hopper::tie(dP);
        score_gradient(S, dP, P, dS, s);
      }
      publish(dS, sm.ds(s));
      if (!C::kPairs) hopper::tie(P);
      hopper::tie(dS);
      float* const to = a.dq + walk.number * kDqBlock;
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
        hand_over(dq, i, to);
      } else {
        hopper::threads_sync(1, 256);
        hopper::products_fence();
        query_gradient(dq, sm.ds(s));
        if constexpr (!C::kPairs) accumulate(dv, P, sm.dcontext(s));
        accumulate(dk, dS, sm.q(s));
        hopper::products_wait<C::kPairs ? 1 : 2>();
        hopper::tie(dq);
        hand_over(dq, i, to);
        hopper::products_wait<0>();
        if (!C::kPairs) hopper::tie(dv);
        hopper::tie(dk);
      }
      if (lane == 0) hopper::barrier_arrive(sm.q_free(s));
    }
    // k and v are read no more: their shared memory carries dk and dv out.
    hopper::threads_sync(1, 256);
    float grown = 1;
    if (C::kPairs && a.pairs.dropout.threshold != 0) {
      grown = static_cast<float>(a.pairs.dropout.grown);
    }
    store(dv, grown, sm.v() + kGroup * (64 * kWidth * 2), &a.dv, tile);
    store(dk, a.scale, sm.k() + kGroup * (64 * kWidth * 2), &a.dk, tile);
  }
};

template <typename C>
__global__ void __launch_bounds__(C::kThreads, 1)
    attend_backward(const __grid_constant__ HopperBackward a) {
  extern __shared__ __align__(1024) unsigned char raw[];  // as the swizzle needs it
  const BackwardShared<C> sm{hopper::shared_address(raw)};
  if (threadIdx.x == 0) {
    hopper::barrier_init(sm.kv_full(), 1);
    for (int s = 0; s < 2; ++s) {
      hopper::barrier_init(sm.q_full(s), 1);
      hopper::barrier_init(sm.dcontext_full(s), 1);
      hopper::barrier_init(sm.q_free(s), 8);
      hopper::barrier_init(sm.dq_full(s), 8);
      hopper::barrier_init(sm.dq_free(s), 1);
    }
    // Tickets and not blockIdx: who waits for a lower one waits for a block that has started.
    const unsigned ticket = C::kTurns ? atomicAdd(a.next_tile, 1u) : blockIdx.x;
    hopper::put_shared(sm.ticket(), static_cast<int>(ticket));
    hopper::fence_barrier_init();
  }
  __syncthreads();
  const int role = __shfl_sync(~0u, threadIdx.x / 128, 0);
  const BackwardTile tile = backward_tile<C>(a, hopper::get_shared(sm.ticket()));
  const int warp = static_cast<int>(threadIdx.x / 32 % 4),
            lane = static_cast<int>(threadIdx.x % 32);
  if (role == 0) {
    hopper::registers_down<C::kProducerRegisters>();
    if (threadIdx.x == 0) load_blocks<C>(a, sm, tile);
    if (C::kTurns && threadIdx.x == 32) add_blocks_by_turns<C>(a, sm, tile);
  } else {
    hopper::registers_up<C::kConsumerRegisters>();
    if (role == 1) {
      BackwardConsumer<C, 0>{a, sm, warp, lane}.run(tile);
    } else {
      BackwardConsumer<C, 1>{a, sm, warp, lane}.run(tile);
    }
  }
}

}  // namespace cephalo::kernels::cuda
