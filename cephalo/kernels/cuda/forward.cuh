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
// The running maximum m is not looked for in every block. A block's sum of exponentials, which is
// needed anyway, tells when m is too far behind: a sum under kHigh means that none of them came
// near an overflow, and by how much all weights of a row are scaled does not matter. Only when a
// sum runs away are the exponentials taken again, with m raised.
//
// What is hidden is selected, never multiplied, in S and P. In O a hidden row of v meets a weight
// of 0, and 0 · NaN is NaN: rows that come out not finite are listed for a kernel that looks at
// pairs.
#pragma once

#include <math_constants.h>

#include <type_traits>

#include "cephalo/kernels/cuda/forward_pairs.cuh"
#include "cephalo/kernels/cuda/forward_plan.cuh"

namespace cephalo::kernels::cuda {

// How far sums may run: P is stored in 16 bits, of which fp16 reaches 2^16 and bf16 2^127.
template <typename Element>
struct ForwardLimits;
template <>
struct ForwardLimits<hopper::Bf16> {
  // Of a sum; of m below a score, and of m above it when it is raised, in powers of two.
  static constexpr float kHigh = 0x1p60F, kBehind = 16.0F, kAhead = 30.0F;
};
template <>
struct ForwardLimits<hopper::F16> {
  static constexpr float kHigh = 0x1p14F, kBehind = 12.0F, kAhead = 0.0F;
};

// ---- the producer: one thread -------------------------------------------------------------------
template <typename C>
struct ForwardProducer {
  const HopperForward& a;
  ForwardShared<C> sm;
  int loaded = 0;  // blocks of keys so far, for stage and parity

  __device__ hopper::BoxPlace keys_at(const ForwardTile& tile, int j) const {
    return {tile.first_key + (tile.blocks - 1 - j) * C::kKeys,
            tile.head / (a.num_heads / a.num_kv_heads), tile.batch};
  }
  __device__ void load_k(const ForwardTile& tile, int j) {
    const int i = loaded + j, stage = i % C::kStages;
    hopper::barrier_wait(sm.k_free(stage), (i / C::kStages & 1) ^ 1);
    hopper::barrier_expect(sm.k_full(stage), C::kKvBytes);
    hopper::box_load(sm.k(stage), &a.k, sm.k_full(stage), keys_at(tile, j));
  }
  __device__ void load_v(const ForwardTile& tile, int j) {
    const int i = loaded + j, stage = i % C::kStages;
    hopper::barrier_wait(sm.v_free(stage), (i / C::kStages & 1) ^ 1);
    hopper::barrier_expect(sm.v_full(stage), C::kKvBytes);
    hopper::box_load(sm.v(stage), &a.v, sm.v_full(stage), keys_at(tile, j));
  }
  // The q of every warpgroup, once the buffer's last tile is stored.
  __device__ void load_q(const ForwardTile& tile, int t, int round) {
    for (int group = 0; group < C::kGroups; ++group) {
      const int x = round % C::kQBuffers * C::kGroups + group;
      hopper::barrier_wait(sm.q_free(x), (round / C::kQBuffers & 1) ^ 1);
      hopper::put_shared(sm.tile(x), t);
      if (t < 0) {
        hopper::barrier_arrive(sm.q_full(x));
        continue;
      }
      hopper::barrier_expect(sm.q_full(x), C::kQBytes);
      hopper::box_load(sm.q(x), &a.q, sm.q_full(x), {tile.row + 64 * group, tile.head, tile.batch});
    }
  }
  __device__ void run() {
    const int tiles = tile_count<C>(a);
    int t = static_cast<int>(blockIdx.x);
    for (int round = 0; t < tiles; ++round) {
      const int next = static_cast<int>(gridDim.x + atomicAdd(a.next_tile, 1u));
      const ForwardTile tile = tile_at<C>(a, t);
      load_k(tile, 0);
      load_q(tile, t, round);
      for (int j = 0; j < tile.blocks; ++j) {
        if (j + 1 < tile.blocks) load_k(tile, j + 1);
        load_v(tile, j);
      }
      loaded += tile.blocks;
      t = next;
      if (t >= tiles) load_q({}, -1, round + 1);
    }
  }
};

// ---- a consumer: one warpgroup, 64 query rows ---------------------------------------------------
// Element i of a thread's accumulator: row warp · 16 + lane / 4 + 8 · (i / 2 % 2), column
// 8 · (i / 4) + 2 · (lane % 4) + i % 2. So a thread holds two rows, and P[i] = {S[2i], S[2i + 1]}
// (row i % 2) is at once the A operand of the second product.
template <typename C>
struct ForwardConsumer {
  using Element = typename C::Element;
  using Limits = ForwardLimits<Element>;
  static constexpr int kWidth = C::kWidth, kKeys = C::kKeys;
  // Where a row starts that has seen no key: finite, so that differences are never NaN.
  static constexpr float kLowest = -1e30F;

  const HopperForward& a;
  ForwardShared<C> sm;
  const int group, warp, lane;
  const float scale;  // in base 2
  int x;              // this tile's q buffer
  float O[kWidth / 2], S[kKeys / 2], m[2], sum[2];

  __device__ void scores(int stage) {  // S = q kᵀ, in flight
    const std::uint64_t k = hopper::operand(sm.k(stage), 0), q = hopper::operand(sm.q(x), 0);
#pragma unroll
    for (int i = 0; i < kWidth / 16; ++i) {
      const int at = i % 4 * 2;  // 32 bytes along the row, in units of 16
      hopper::Product<Element, kKeys>::from_shared(S, q + i / 4 * 512 + at,
                                                   k + i / 4 * (kKeys * 8) + at, i > 0);
    }
    hopper::products_commit();
  }
  template <bool kTurns>
  __device__ void values(const std::uint32_t (&P)[kKeys / 4], int stage) {  // O += P v, in flight
    const std::uint64_t v = hopper::operand(sm.v(stage), kKeys * 128);
#pragma unroll
    for (int i = 0; i < kKeys / 16; ++i) {
      if (kTurns && i == C::kHandOff) hopper::threads_arrive(1 + (group + 1) % C::kGroups, 256);
      hopper::Product<Element, kWidth>::template from_registers<1>(O, P + 4 * i, v + i * 128, 1);
    }
    hopper::products_commit();
  }
  __device__ void release(std::uint32_t barrier) {  // this warp no longer reads the stage
    if (lane == 0) hopper::barrier_arrive(barrier);
  }
  __device__ void wait_k(int i) {
    hopper::barrier_wait(sm.k_full(i % C::kStages), i / C::kStages & 1);
  }
  __device__ void wait_v(int i) {
    hopper::barrier_wait(sm.v_full(i % C::kStages), i / C::kStages & 1);
  }
  __device__ int row_of_thread(int r) const {
    return warp * 16 + lane / 4 + 8 * r;
  }

  // −inf where the key is outside of the row's span.
  __device__ void hide(const ForwardTile& tile, int key) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      int begin = 0, end = a.kv_tokens;
      if (C::kSpans) {
        const ShortRule rule = short_rule(a.rules[tile.batch * a.rule_stride]);
        const int i = tile.row + group * 64 + row_of_thread(r);
        begin = rule.begin(i);
        end = max(begin, rule.end(i));
      }
      const int column = key + 2 * (lane % 4) - begin;
      const unsigned count = end - begin;
#pragma unroll
      for (int i = 0; i < kKeys / 2; ++i) {
        if (i / 2 % 2 == r && static_cast<unsigned>(column + i / 4 * 8 + i % 2) >= count) {
          S[i] = -CUDART_INF_F;
        }
      }
    }
  }
  // The four lanes that hold a row have one answer; of each lane, for its two rows.
  struct RowBits {
    unsigned bits[2];
    __device__ bool any() const { return (bits[0] | bits[1]) != 0; }
    __device__ bool of(int r, int lane) const { return (bits[r] >> (lane & 28) & 15u) != 0; }
  };
  static __device__ RowBits rows_where(bool first, bool second) {
    return {{__ballot_sync(~0u, first), __ballot_sync(~0u, second)}};
  }
  // The maximum of these rows raised to cover S, that of others left: what one query sees changes
  // no bit of another. Returns by how much the past shrinks.
  // `ahead`: so many powers of two further than that, where it will have to be raised again.
  __device__ void raise_maximum(const RowBits& rows, float ahead, float (&shrink)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float top = -CUDART_INF_F;
#pragma unroll
      for (int i = 0; i < kKeys / 4; ++i) {
        if (i % 2 == r) top = fmaxf(top, fmaxf(S[2 * i], S[2 * i + 1]));
      }
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
      const float above = top * scale + ahead;
      const float up = rows.of(r, lane) && above > m[r] ? above : m[r];
      shrink[r] = hopper::exp2_approx(m[r] - up);
      m[r] = up;
    }
  }
  __device__ void shrink_past(const float (&shrink)[2]) {
#pragma unroll
    for (int i = 0; i < kWidth / 2; ++i) O[i] *= shrink[i / 2 % 2];
  }
  __device__ RowBits rows_behind() const {  // their maximum is too far below S
    float top[2] = {-CUDART_INF_F, -CUDART_INF_F};
#pragma unroll
    for (int i = 0; i < kKeys / 4; ++i) {
      top[i % 2] = fmaxf(top[i % 2], fmaxf(S[2 * i], S[2 * i + 1]));
    }
    return rows_where(fmaf(top[0], scale, -m[0]) > Limits::kBehind,
                      fmaf(top[1], scale, -m[1]) > Limits::kBehind);
  }
  // P = exp2(scale · S − m) of row r, and the block's share of its sum.
  __device__ void exponentials(int r, std::uint32_t (&P)[kKeys / 4], float& block) {
    block = 0;
#pragma unroll
    for (int i = r; i < kKeys / 4; i += 2) {
      const float low = hopper::exp2_approx(fmaf(S[2 * i], scale, -m[r]));
      const float high = hopper::exp2_approx(fmaf(S[2 * i + 1], scale, -m[r]));
      block += low;
      block += high;
      P[i] = hopper::pack(Element{}, low, high);
    }
  }
  // The same of both rows, whose chains of sums run beside each other.
  __device__ void exponentials(std::uint32_t (&P)[kKeys / 4], float (&block)[2]) {
    block[0] = block[1] = 0;
#pragma unroll
    for (int i = 0; i < kKeys / 4; ++i) {
      const int r = i % 2;
      const float low = hopper::exp2_approx(fmaf(S[2 * i], scale, -m[r]));
      const float high = hopper::exp2_approx(fmaf(S[2 * i + 1], scale, -m[r]));
      block[r] += low;
      block[r] += high;
      P[i] = hopper::pack(Element{}, low, high);
    }
  }

  __device__ void add_to_sums(const float (&block)[2], const RowBits& raised,
                              const float (&shrink)[2]) {
    if (raised.any()) {
      sum[0] *= shrink[0];
      sum[1] *= shrink[1];
    }
    sum[0] += block[0];
    sum[1] += block[1];
  }
  struct NoPairs {};
  using Pairs = std::conditional_t<C::kPairs, PairSoftmax<C>, NoPairs>;
  __device__ Pairs pair_softmax(const ForwardTile& tile) const {
    if constexpr (C::kPairs) {
      const int first = tile.row + group * 64;
      return {a, tile, first, first + row_of_thread(0), lane, {}, 0, 0};
    } else {
      return {};
    }
  }

  // Block i (counted over all tiles), with P of block i − 1; k_i and v_{i−1} have arrived. A masked
  // block looks for its maximum first: few of its scores may be left.
  template <bool kMasked>
  __device__ void step(std::uint32_t (&P)[kKeys / 4], int i, const ForwardTile& tile, int key,
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
    float shrink[2], block[2];
    std::uint32_t T[kKeys / 4];  // not P yet: the running product still reads P
    RowBits raised;
    if constexpr (C::kPairs) {
      raised = {{~0u, ~0u}};
      pairs.block(S, m, sum, shrink, T);
    } else if constexpr (kMasked) {
      hide(tile, key);
      raised = rows_behind();
      if (raised.any()) raise_maximum(raised, Limits::kAhead, shrink);
      exponentials(T, block);
    } else {
      exponentials(T, block);
      raised = rows_where(!(block[0] < Limits::kHigh), !(block[1] < Limits::kHigh));
      if (raised.any()) {
        raise_maximum(raised, Limits::kAhead, shrink);
        if (raised.bits[0] != 0) exponentials(0, T, block[0]);
        if (raised.bits[1] != 0) exponentials(1, T, block[1]);
      }
    }
    if constexpr (!C::kPairs) add_to_sums(block, raised, shrink);
    hopper::tie(T);
    // The tie above and this loop keep both compilers from moving the exponentials behind the wait.
    if (more) wait_k(i + 1);
    wait_v(i);
    hopper::products_wait<0>();
    hopper::tie(O);
    release(v_free);
    if (raised.any()) shrink_past(shrink);
#pragma unroll
    for (int e = 0; e < kKeys / 4; ++e) asm volatile("mov.b32 %0, %1;" : "=r"(P[e]) : "r"(T[e]));
  }

  // The tile's first block.
  __device__ void start(std::uint32_t (&P)[kKeys / 4], int i, const ForwardTile& tile, int key,
                        bool masked) {
    const int stage = i % C::kStages;
    wait_k(i);
    hopper::products_fence();
    scores(stage);
    [[maybe_unused]] Pairs pairs = pair_softmax(tile);
    if constexpr (C::kPairs) pairs.look(key);
    hopper::products_wait<0>();
    hopper::tie(S);
    release(sm.k_free(stage));
    float shrink[2];
    if constexpr (C::kPairs) {
      m[0] = m[1] = -CUDART_INF_F;
      sum[0] = sum[1] = 0;
      pairs.block(S, m, sum, shrink, P);
    } else {
      if (masked) hide(tile, key);
      m[0] = m[1] = kLowest;
      raise_maximum({{~0u, ~0u}}, 0.0F, shrink);
      exponentials(P, sum);
    }
#pragma unroll
    for (int e = 0; e < kWidth / 2; ++e) O[e] = 0;
  }

  // Keys behind a sequence's end are often memory that nobody has written: their rows of v become
  // 0. Every warpgroup does it for itself, all with the same result.
  __device__ void clear_unwritten(int stage, int key, int kv_len) {
    const int first = max(0, kv_len - key);
    // Told here, and not kept in registers from the kernel's beginning on.
    const int thread = static_cast<int>(hopper::ready(threadIdx.x % 128));
    for (int n = thread; n < (kKeys - first) * (kWidth / 8); n += 128) {
      const int row = first + n / (kWidth / 8), chunk = n % (kWidth / 8);
      const std::uint32_t at = sm.v(stage) + chunk / 8 * (kKeys * 128) + row * 128 + chunk % 8 * 16;
      asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(at), "r"(0) : "memory");
    }
    hopper::fence_async();
    hopper::threads_sync(8 + group, 128);
  }

  __device__ void list_for_care(const ForwardTile& tile, int row) {
    a.careful_rows[atomicAdd(a.careful, 1u)] =
        static_cast<unsigned>((tile.batch * a.num_heads + tile.head) * a.q_tokens + row);
  }

  // Where pairs are looked at, the largest visible score's exponential is 1.
  __device__ bool has_seen(const ForwardTile& tile, int i, float total) const {
    if (C::kPairs) return total != 0.0F;
    if (!C::kSpans) return i < a.q_tokens;
    const ShortRule rule = short_rule(a.rules[tile.batch * a.rule_stride]);
    return i < rule.q_len && rule.begin(i) < rule.end(i);
  }

  // O / sum through q's shared memory; lse.
  __device__ void store(const ForwardTile& tile) {
    float share[2], wrong[2] = {0, 0};
    bool seen[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float total = sum[r];
      total += __shfl_xor_sync(~0u, total, 1);
      total += __shfl_xor_sync(~0u, total, 2);
      const int i = tile.row + group * 64 + row_of_thread(r);
      seen[r] = has_seen(tile, i, total);
      share[r] = 1.0F / total;
      if (C::kPairs && a.pairs.dropout.threshold != 0) {
        share[r] *= static_cast<float>(a.pairs.dropout.grown);
      }
      if (a.lse != nullptr && lane % 4 == 0 && i < a.q_tokens) {
        const float lse = C::kPairs ? m[r] + log2f(total) * kLn2 : (m[r] + log2f(total)) * kLn2;
        a.lse[tile.batch * a.lse_stride[0] + tile.head * a.lse_stride[1] + i * a.lse_stride[2]] =
            seen[r] ? lse : -CUDART_INF_F;
      }
    }
    const int row = warp * 16 + lane % 16, half = lane / 16;
#pragma unroll
    for (int i = 0; i < kWidth / 16; ++i) {
      std::uint32_t w[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int r = e % 2;
        const float low = O[8 * i + 2 * e] * share[r], high = O[8 * i + 2 * e + 1] * share[r];
        wrong[r] = fmaf(low, 0.0F, fmaf(high, 0.0F, wrong[r]));  // stays 0 while all are finite
        w[e] = seen[r] ? hopper::pack(Element{}, low, high) : 0;
      }
      // A chunk of 16 bytes of the row's 128, swizzled by the row.
      const int chunk = (2 * i + half) % 8, plane = i / 4;
      hopper::store_fragments(sm.q(x) + plane * 8192 + row * 128 + (chunk ^ (row % 8)) * 16, w);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const unsigned found = __ballot_sync(~0u, seen[r] && wrong[r] != 0.0F);
      const int i = tile.row + group * 64 + row_of_thread(r);
      if (lane % 4 == 0 && (found >> lane & 15u) != 0 && i < a.q_tokens) list_for_care(tile, i);
    }
    hopper::fence_async();
    hopper::threads_sync(8 + group, 128);
    if (threadIdx.x % 128 == 0) {
      hopper::box_store(&a.context, sm.q(x), {tile.row + group * 64, tile.head, tile.batch});
      hopper::stores_wait_read();
      hopper::barrier_arrive(sm.q_free(x));
    }
  }

  // The blocks [begin, end) of a tile of which every row of this warpgroup sees every key: found
  // out once, since what stands between two steps is time that the tensor cores wait.
  struct CleanBlocks {
    int begin, end;
  };
  __device__ CleanBlocks clean_blocks(const ForwardTile& tile) const {
    if (C::kPairs) return {tile.blocks, tile.blocks};
    int first = 0, last = a.kv_tokens;  // the keys that all rows see
    if (C::kSpans) {
      const ShortRule rule = short_rule(a.rules[tile.batch * a.rule_stride]);
      const int row = tile.row + group * 64;
      first = rule.begin(max(row, min(row + 64, rule.q_len) - 1));
      last = rule.end(row);
    }
    const int hidden_left = (max(0, first - tile.first_key) + kKeys - 1) / kKeys;
    return {tile.blocks - max(0, last - tile.first_key) / kKeys, tile.blocks - hidden_left};
  }

  __device__ void run_tile(const ForwardTile& tile, int used) {
    const CleanBlocks clean = clean_blocks(tile);
    const int masked_end = min(clean.begin, tile.blocks);
    const auto key_of = [&](int j) { return tile.first_key + (tile.blocks - 1 - j) * kKeys; };
    std::uint32_t P[kKeys / 4];
    start(P, used, tile, key_of(0), clean.begin > 0 || clean.end <= 0);
    if (tile.blocks > 1) wait_k(used + 1);
    wait_v(used);
    if (C::kSpans) {
      const int kv_len = shortened(a.rules[tile.batch * a.rule_stride].kv_len);
      if (kv_len < min(key_of(0) + kKeys, a.kv_tokens)) {
        clear_unwritten(used % C::kStages, key_of(0), kv_len);
      }
    }
    int j = 1;
    for (; j < masked_end; ++j) {
      step<true>(P, used + j, tile, key_of(j), j + 1 < tile.blocks);
    }
    if constexpr (!C::kPairs) {
      for (; j < clean.end; ++j) step<false>(P, used + j, tile, 0, j + 1 < tile.blocks);
    }
    if constexpr (C::kSpans && !C::kPairs) {  // a window hides on the left as well
      for (; j < tile.blocks; ++j) {
        step<true>(P, used + j, tile, key_of(j), j + 1 < tile.blocks);
      }
    }
    const int last = (used + tile.blocks - 1) % C::kStages;
    hopper::products_fence();
    values<false>(P, last);
    hopper::products_wait<0>();
    hopper::tie(O);
    release(sm.v_free(last));
    store(tile);
  }

  __device__ void run() {
    int used = 0;                                                 // blocks of keys so far
    if (group == C::kGroups - 1) hopper::threads_arrive(1, 256);  // warpgroup 0 goes first
    for (int round = 0;; ++round) {
      x = round % C::kQBuffers * C::kGroups + group;
      hopper::barrier_wait(sm.q_full(x), round / C::kQBuffers & 1);
      const int t = hopper::get_shared(sm.tile(x));
      if (t < 0) break;
      const ForwardTile tile = tile_at<C>(a, t);
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
      hopper::barrier_init(sm.k_free(s), 4 * C::kGroups);
      hopper::barrier_init(sm.v_free(s), 4 * C::kGroups);
    }
    for (int x = 0; x < C::kGroups * C::kQBuffers; ++x) {
      hopper::barrier_init(sm.q_full(x), 1);
      hopper::barrier_init(sm.q_free(x), 1);
    }
    hopper::fence_barrier_init();
  }
  __syncthreads();
  // The shuffle tells the compiler that a warp agrees on it.
  const int role = __shfl_sync(~0u, threadIdx.x / 128, 0);
  if (role == 0) {
    hopper::registers_down<C::kProducerRegisters>();
    if (threadIdx.x == 0) ForwardProducer<C>{a, sm}.run();
  } else {
    hopper::registers_up<C::kConsumerRegisters>();
    ForwardConsumer<C>{a,
                       sm,
                       role - 1,
                       static_cast<int>(threadIdx.x / 32 % 4),
                       static_cast<int>(threadIdx.x % 32),
                       a.scale * 1.44269504F}
        .run();
  }
}

}  // namespace cephalo::kernels::cuda
