// From products to scores, in place: a bias, softcap or alibi, and what is hidden.
#pragma once

#include "cephalo/kernels/cuda/forward_rows.cuh"
#include "cephalo/kernels/cuda/softcap.cuh"

namespace cephalo::kernels::cuda {

template <typename C>
struct ForwardScores : ForwardRows<C> {
  using Base = ForwardRows<C>;
  using Base::a, Base::sm, Base::group, Base::warp, Base::lane, Base::scale, Base::S, Base::rows;
  using Base::Base;
  static constexpr int kKeys = C::kKeys;

  // A score in the units of the maximum: base 2, or natural ones with a bias, which may be -3.4e38.
  __device__ float in_units(float s) const { return C::kBias || C::kSoftcap ? s : s * scale; }
  // By how many powers of two a score lies above a level.
  __device__ float above(float s, float level) const {
    if constexpr (C::kBias) return (s - level) * kLog2e;
    if constexpr (C::kSoftcap) return s - level;
    return fmaf(s, scale, -level);
  }
  static __device__ float shrunk(float from, float to) {
    return hopper::exp2_approx(C::kBias ? (from - to) * kLog2e : from - to);
  }

  // Rounded once the bias is added.
  __device__ void add_bias(int stage) {
    const int row = warp * 16 + lane % 16;  // of the fragments that this lane points at
    const std::uint32_t at = sm.bias(stage, group) + row * 128;
#pragma unroll
    for (int j = 0; j < kKeys / 8; j += 2) {
      const int chunk = j % 8 + lane / 16;
      std::uint32_t w[4];
      hopper::load_fragments<false>(at + j / 8 * 8192 + (chunk ^ (row % 8)) * 16, w);
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        float added[2];
        hopper::unpack(typename C::Element{}, w[n], added);
        S[4 * j + 2 * n] = fmaf(S[4 * j + 2 * n], a.scale, added[0]);
        S[4 * j + 2 * n + 1] = fmaf(S[4 * j + 2 * n + 1], a.scale, added[1]);
      }
    }
    __syncwarp();
    hopper::warp_arrive(sm.bias_free(stage), lane);
  }
  __device__ void cap() {
#pragma unroll
    for (int e = 0; e < kKeys / 2; ++e) {
      S[e] = a.pairs.softcap2 * tanh_by_exp2(S[e] * a.pairs.scale_in_caps);
    }
  }
  // How far the thread's first key of a block is from row r's position.
  __device__ float distance(const ForwardTile& tile, int key, int r) const {
    const int shift = this->rule_of(tile).shift;
    return static_cast<float>(key + 2 * (lane % 4) - this->query_of_thread(tile, r) - shift);
  }
  __device__ void add_slopes(const ForwardTile& tile, int key) {
    const float from[2] = {distance(tile, key, 0), distance(tile, key, 1)};
#pragma unroll
    for (int e = 0; e < kKeys / 2; ++e) {
      const float away = from[e / 2 % 2] + static_cast<float>(e / 4 * 8 + e % 2);
      S[e] = fmaf(-rows.slope, fabsf(away), S[e]);
    }
  }
  // On the left of all rows: counted from the thread's first key, and how much that lies below
  // (in base 2) is told apart.
  __device__ void add_slopes_from_first(const ForwardTile& tile, int key, float (&below)[2]) {
#pragma unroll
    for (int e = 0; e < kKeys / 2; ++e) {
      S[e] = fmaf(rows.slope, static_cast<float>(e / 4 * 8 + e % 2), S[e]);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) below[r] = rows.slope * scale * distance(tile, key, r);
  }

  // Block i; below: what else is added to a row's scores, where it is not masked and has alibi.
  template <bool kMasked>
  __device__ void finish_scores(int i, const ForwardTile& tile, int key, float (&below)[2]) {
    if constexpr (C::kBias) add_bias(i % C::kBiasStages);
    if constexpr (C::kSoftcap) cap();
    if constexpr (C::kAlibi) {
      below[0] = below[1] = 0;
      if (!C::kMayLackSlopes || rows.slope != 0.0F) {
        if constexpr (kMasked) {
          add_slopes(tile, key);
        } else {
          add_slopes_from_first(tile, key, below);
        }
      }
    }
    if constexpr (kMasked) this->hide(tile, key);
  }
};

}  // namespace cephalo::kernels::cuda
