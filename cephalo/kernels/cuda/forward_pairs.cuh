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
  const HopperForward& a;
  const ForwardTile& tile;
  int row, lane;  // the thread's first row

  // S: products of q and k, spent afterwards. m, sum: of the rows so far. shrink: by how much they
  // and the context so far become smaller. P: exponentials, 0 where dropped.
  __device__ void block(float (&S)[kThreadPairs], int key, float (&m)[2], float (&sum)[2],
                        float (&shrink)[2], std::uint32_t (&P)[kThreadPairs / 2]) const {
    const ShortRule rule = short_rule(a.rules[tile.batch * a.rule_stride]);
    const TilePairs<RowsOfQueries> pairs{a.pairs, a.q_tokens,           a.kv_tokens,
                                         rule,    tile.batch,           tile.head,
                                         row,     key + 2 * (lane % 4), lane};
    std::uint32_t dropped = 0;
#pragma unroll
    for (int g = 0; g < kThreadGroups; ++g) {
      float x[4];
#pragma unroll
      for (int c = 0; c < 4; ++c) x[c] = S[4 * g + c] * a.scale;
      pairs.cap(x);
      const std::uint32_t hidden = pairs.add_and_hide(g, x);
      dropped |= pairs.dropped(g) << 4 * g;
#pragma unroll
      for (int c = 0; c < 4; ++c) S[4 * g + c] = hidden >> c & 1U ? -CUDART_INF_F : x[c];
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
      const float low = hopper::exp2_approx((S[2 * n] - base[r]) * kLog2e);
      const float high = hopper::exp2_approx((S[2 * n + 1] - base[r]) * kLog2e);
      sum[r] += low;
      sum[r] += high;
      P[n] = hopper::pack(typename C::Element{}, dropped >> 2 * n & 1U ? 0.0F : low,
                          dropped >> (2 * n + 1) & 1U ? 0.0F : high);
    }
  }
};

}  // namespace cephalo::kernels::cuda
