// The softmax of forward kernels that look at pairs. Scores are natural here, not in base 2, and
// rounded once all is added: exp2((x − m) · log2 e) keeps its digits beside a bias of −1e30. The
// maximum is that of every block: biases move it at any time.
#pragma once

#include "cephalo/kernels/cuda/forward_plan.cuh"
#include "cephalo/kernels/cuda/tile_pairs.cuh"

namespace cephalo::kernels::cuda {

template <typename C>
struct PairSoftmax {
  static constexpr int kCount = C::kKeys / 2;  // pairs of a thread
  static_assert(kCount <= 32, "a word has a bit for each");
  // Before there are scores, while products run; later where that takes too many registers.
  static constexpr bool kLooksEarly = C::kParts == 1;
  static constexpr int kAtOnce = kLooksEarly ? 16 : 4;
  const HopperForward& a;
  const ForwardTile& tile;
  int first_row, row, lane;  // of the warpgroup, of the thread
  float added[kLooksEarly ? kCount : kAtOnce];
  std::uint32_t hidden, dropped;

  __device__ TilePairs<RowsOfQueries> pairs_from(int key) const {
    const ShortRule rule = short_rule(a.rules[tile.batch * a.rule_stride]);
    return {a.pairs, a.q_tokens, a.kv_tokens,          rule, tile.batch, tile.head, first_row,
            key,     row,        key + 2 * (lane % 4), lane};
  }
  __device__ void look(int key) {
    if (!kLooksEarly || is_plain()) return;
    const TilePairs<RowsOfQueries> pairs = pairs_from(key);
    const auto known = pairs.known();
    hidden = 0;
#pragma unroll
    for (int first = 0; first < kCount; first += kAtOnce) {
      float some[kAtOnce];
      const std::uint32_t bits = pairs.look(first, known, some);
      hidden |= (bits & ((1U << kAtOnce) - 1)) << first;
#pragma unroll
      for (int n = 0; n < kAtOnce; ++n) added[first + n] = some[n];
    }
    draw(pairs);
  }
  // Far less code for what wide rows are mostly asked: all of it does not fit the cache of
  // instructions.
  __device__ bool is_plain() const {
    return C::kIsWide && a.pairs.by_position_alone;
  }
  __device__ void draw(const TilePairs<RowsOfQueries>& pairs) {
    dropped = 0;
    if (a.pairs.dropout.threshold == 0) return;
#pragma unroll 2  // all at once would not fit the registers
    for (int g = 0; g < kCount / 4; ++g) dropped |= pairs.dropped(g) << 4 * g;
  }

  // S: products of q and k of the keys from `key` on, afterwards exponentials, 0 where dropped. m,
  // sum: of the rows so far. shrink: by how much they and the context so far become smaller.
  __device__ void block(int key, float (&S)[kCount], float (&m)[2], float (&sum)[2],
                        float (&shrink)[2]) {
    if (is_plain()) {
      dropped = 0;
      hidden = pairs_from(key).template hidden_alone<kCount>();
#pragma unroll
      for (int e = 0; e < kCount; ++e) {
        S[e] = hidden >> e & 1U ? -CUDART_INF_F : S[e] * a.scale;
      }
    } else if constexpr (kLooksEarly) {
      finish(S, 0, added, hidden);
    } else {
      const TilePairs<RowsOfQueries> pairs = pairs_from(key);
      const auto known = pairs.known();
#pragma unroll
      for (int first = 0; first < kCount; first += kAtOnce) {
        finish(S, first, added, pairs.look(first, known, added));
      }
      draw(pairs);
    }
    exponentials(S, m, sum, shrink);
  }
  // Products from `first` on to scores.
  template <int kSome>
  __device__ void finish(float (&S)[kCount], int first, const float (&some)[kSome],
                         std::uint32_t bits) const {
    if (a.pairs.softcap != 0.0F) {
      float x[kSome];
#pragma unroll
      for (int e = 0; e < kSome; ++e) x[e] = S[first + e] * a.scale;
      cap_scores<(C::kParts > 1)>(a.pairs.softcap, x, [](int, float) {});
#pragma unroll
      for (int e = 0; e < kSome; ++e) S[first + e] = x[e] + some[e];
    } else {
#pragma unroll
      for (int e = 0; e < kSome; ++e) S[first + e] = fmaf(S[first + e], a.scale, some[e]);
    }
    if (bits != 0) {
#pragma unroll
      for (int e = 0; e < kSome; ++e) {
        if (bits >> e & 1U) S[first + e] = -CUDART_INF_F;
      }
    }
  }
  __device__ void exponentials(float (&S)[kCount], float (&m)[2], float (&sum)[2],
                               float (&shrink)[2]) const {
    float base[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float top = m[r];
#pragma unroll
      for (int e = 0; e < kCount; ++e) {
        if (e / 2 % 2 == r) top = fmaxf(top, S[e]);
      }
      top = fmaxf(top, __shfl_xor_sync(kAll, top, 1));
      top = fmaxf(top, __shfl_xor_sync(kAll, top, 2));
      base[r] = top == -CUDART_INF_F ? 0.0F : top;  // differences are numbers
      shrink[r] = hopper::exp2_approx((m[r] - base[r]) * kLog2e);
      m[r] = top;
      sum[r] *= shrink[r];
    }
#pragma unroll
    for (int n = 0; n < kCount / 2; ++n) {
      const int r = n % 2;
      float low = hopper::exp2_approx((S[2 * n] - base[r]) * kLog2e);
      float high = hopper::exp2_approx((S[2 * n + 1] - base[r]) * kLog2e);
      sum[r] += low;
      sum[r] += high;
      if (dropped >> 2 * n & 1U) low = 0;
      if (dropped >> (2 * n + 1) & 1U) high = 0;
      S[2 * n] = low;
      S[2 * n + 1] = high;
    }
  }
};

}  // namespace cephalo::kernels::cuda
