// Weights and their gradients in kernels that look at every pair.
#pragma once

#include "cephalo/kernels/cuda/backward_keys.cuh"
#include "cephalo/kernels/cuda/parts.cuh"
#include "cephalo/kernels/cuda/tile_pairs.cuh"

namespace cephalo::kernels::cuda {

template <typename C, int kGroup>
struct BackwardPairs : BackwardKeys<C, kGroup> {
  using Base = BackwardKeys<C, kGroup>;
  using Base::a, Base::sm, Base::warp, Base::lane;
  using Base::Base;
  using Element = typename C::Element;
  static constexpr int kQueries = C::kQueries, kParts = C::kParts, kWords = kQueries / 4;

  // S becomes dscore / (dP − delta), P the weights that v was multiplied by; dropped: bits of those
  // that are 0 by chance.
  __device__ void pair_weights(float (&S)[kQueries / 2], std::uint32_t (&P)[kParts * kWords],
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
    dropped = 0;
    // Far less code for what wide rows are mostly asked: all of it does not fit the cache of
    // instructions.
    if (C::kIsWide && a.pairs.by_position_alone) {
      plain_weights(S, P, pairs.template hidden_alone<kQueries / 2>(), s);
      return;
    }
    const auto known = pairs.known();
#pragma unroll
    for (int g = 0; g < kQueries / 8; ++g) {
      float added[4];  // and only then what else a group needs: registers are few
      const std::uint32_t hidden = pairs.look(4 * g, known, added);
      const std::uint32_t drops = pairs.dropped(g);
      float shift[2], share[2], x[4], slope[4] = {1, 1, 1, 1};
#pragma unroll
      for (int c = 0; c < 4; ++c) x[c] = S[4 * g + c] * a.scale;
      if (a.pairs.softcap != 0.0F) {
        cap_scores<(C::kParts > 1)>(a.pairs.softcap, x, [&](int c, float of) { slope[c] = of; });
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
        put_parts<kParts, kWords>(Element{}, drops >> 2 * r & 1U ? 0.0F : x[2 * r],
                                  drops >> (2 * r + 1) & 1U ? 0.0F : x[2 * r + 1], 2 * g + r, P);
      }
      dropped |= drops << 4 * g;
    }
  }
  // The same where positions alone hide; hidden: a bit for each pair.
  __device__ void plain_weights(float (&S)[kQueries / 2], std::uint32_t (&P)[kParts * kWords],
                                std::uint32_t hidden, int s) {
#pragma unroll
    for (int g = 0; g < kQueries / 8; ++g) {
      float shift[2], share[2];
      hopper::get_two(sm.lse(s) + 4 * (8 * g + 2 * (lane % 4)), shift);
      hopper::get_two(sm.share(s) + 4 * (8 * g + 2 * (lane % 4)), share);
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const float above = fmaf(S[4 * g + c], a.scale, -shift[c % 2]);
        const float weight = hopper::exp2_approx(fmaf(above, kLog2e, share[c % 2]));
        S[4 * g + c] = hidden >> (4 * g + c) & 1U ? 0.0F : weight;
      }
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        put_parts<kParts, kWords>(Element{}, S[4 * g + 2 * r], S[4 * g + 2 * r + 1], 2 * g + r, P);
      }
    }
  }
  // A pair without weight has no gradient, whatever its product is.
  __device__ void pair_gradient(const float (&S)[kQueries / 2], const float (&dP)[kQueries / 2],
                                std::uint32_t (&dS)[kParts * kWords], std::uint32_t dropped,
                                int s) {
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
        put_parts<kParts, kWords>(Element{}, ds[0], ds[1], e / 2, dS);
      }
    }
  }
};

}  // namespace cephalo::kernels::cuda
