// The softmax of forward kernels that look at pairs. Scores are natural here, not in base 2, and
// rounded once all is added: exp2((x − m) · log2 e) keeps its digits beside a bias of −1e30. The
// maximum is that of every block: biases move it at any time.
#pragma once

#include "cephalo/kernels/cuda/forward_plan.cuh"
#include "cephalo/kernels/cuda/tile_pairs.cuh"

namespace cephalo::kernels::cuda {

template <typename C>
struct PairSoftmax {
  static_assert(C::kKeys / 2 == kThreadPairs);
  static constexpr int kAtOnce = 16;
  const HopperForward& a;
  const ForwardTile& tile;
  int first_row, row, lane;  // of the warpgroup, of the thread
  float added[kThreadPairs];
  std::uint32_t hidden, dropped;

  // What can be known before there are scores.
  __device__ void look(int key) {
    const ShortRule rule = short_rule(a.rules[tile.batch * a.rule_stride]);
    const TilePairs<RowsOfQueries> pairs{
        a.pairs, a.q_tokens, a.kv_tokens,          rule, tile.batch, tile.head, first_row,
        key,     row,        key + 2 * (lane % 4), lane};
    const auto known = pairs.known();
    hidden = dropped = 0;
#pragma unroll
    for (int first = 0; first < kThreadPairs; first += kAtOnce) {
      float some[kAtOnce];
      const std::uint32_t bits = pairs.look(first, known, some);
      hidden |= (bits & ((1U << kAtOnce) - 1)) << first;
#pragma unroll
      for (int n = 0; n < kAtOnce; ++n) added[first + n] = some[n];
    }
    if (a.pairs.dropout.threshold == 0) return;
#pragma unroll 2  // all eight at once would not fit the registers
    for (int g = 0; g < kThreadPairs / 4; ++g) dropped |= pairs.dropped(g) << 4 * g;
  }

  // S: products of q and k, spent afterwards. m, sum: of the rows so far. shrink: by how much they
  // and the context so far become smaller. P: exponentials, 0 where dropped.
  __device__ void block(float (&S)[kThreadPairs], float (&m)[2], float (&sum)[2],
                        float (&shrink)[2], std::uint32_t (&P)[kThreadPairs / 2]) const {
    if (a.pairs.softcap != 0.0F) {
#pragma unroll
      for (int e = 0; e < kThreadPairs; ++e) S[e] *= a.scale;
      cap_scores(a.pairs.softcap, S, [](int, float) {});
#pragma unroll
      for (int e = 0; e < kThreadPairs; ++e) S[e] += added[e];
    } else {
#pragma unroll
      for (int e = 0; e < kThreadPairs; ++e) S[e] = fmaf(S[e], a.scale, added[e]);
    }
    if (hidden != 0) {
#pragma unroll
      for (int e = 0; e < kThreadPairs; ++e) {
        if (hidden >> e & 1U) S[e] = -CUDART_INF_F;
      }
    }
    float base[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float top = m[r];
#pragma unroll
      for (int e = 0; e < kThreadPairs; ++e) {
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
    for (int n = 0; n < kThreadPairs / 2; ++n) {
      const int r = n % 2;
      float low = hopper::exp2_approx((S[2 * n] - base[r]) * kLog2e);
      float high = hopper::exp2_approx((S[2 * n + 1] - base[r]) * kLog2e);
      sum[r] += low;
      sum[r] += high;
      if (dropped >> 2 * n & 1U) low = 0;
      if (dropped >> (2 * n + 1) & 1U) high = 0;
      P[n] = hopper::pack(typename C::Element{}, low, high);
    }
  }
};

}  // namespace cephalo::kernels::cuda
