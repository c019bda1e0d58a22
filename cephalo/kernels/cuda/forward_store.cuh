// The end of a tile of the forward pass: context and lse of its rows, and which of them need care.
#pragma once

#include "cephalo/kernels/cuda/elements.cuh"
#include "cephalo/kernels/cuda/forward_softmax.cuh"

namespace cephalo::kernels::cuda {

template <typename C>
struct ForwardStore : ForwardSoftmax<C> {
  using Base = ForwardSoftmax<C>;
  using Base::a, Base::sm, Base::group, Base::warp, Base::lane, Base::x, Base::O, Base::m,
      Base::sum;
  using Base::Base;
  using Element = typename C::Element;
  static constexpr int kVWidth = C::kVWidth;

  __device__ void list_for_care(const ForwardTile& tile, int row) {
    a.careful_rows[atomicAdd(a.careful, 1u)] =
        static_cast<unsigned>((tile.batch * a.num_heads + tile.head) * a.q_tokens + row);
  }
  // Where pairs are looked at, the largest visible score's exponential is 1.
  __device__ bool has_seen(const ForwardTile& tile, int r, float total) const {
    if (C::kPairs) return total != 0.0F;
    if (C::kBias) return total != 0.0F && this->may_see(tile, r);
    return this->may_see(tile, r);
  }

  // O / sum through q's shared memory, as the copy engine writes it.
  __device__ void put_context(const float (&share)[2], const bool (&seen)[2], float (&wrong)[2]) {
    const int row = warp * 16 + lane % 16, half = lane / 16;
#pragma unroll
    for (int i = 0; i < kVWidth / 16; ++i) {
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
    hopper::fence_async();
  }
  // The same to where it will be, at once.
  __device__ void write_context(const ForwardTile& tile, const float (&share)[2],
                                const bool (&seen)[2], float (&wrong)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int i = this->query_of_thread(tile, r);
      const Row to = row_of(a.context_rows, tile.batch, tile.head, min(i, a.q_tokens - 1));
#pragma unroll
      for (int n = 0; n < kVWidth / 8; ++n) {
        const float low = O[4 * n + 2 * r] * share[r], high = O[4 * n + 2 * r + 1] * share[r];
        wrong[r] = fmaf(low, 0.0F, fmaf(high, 0.0F, wrong[r]));
        if (i < a.q_tokens) {
          to.set_two(8 * n + 2 * (lane % 4), a.v_columns, seen[r] ? low : 0.0F,
                     seen[r] ? high : 0.0F);
        }
      }
    }
  }

  // Context and lse.
  __device__ void store(const ForwardTile& tile) {
    float share[2], wrong[2] = {0, 0};
    bool seen[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float total = sum[r];
      total += __shfl_xor_sync(~0u, total, 1);
      total += __shfl_xor_sync(~0u, total, 2);
      const int i = this->query_of_thread(tile, r);
      seen[r] = has_seen(tile, r, total);
      share[r] = 1.0F / total;
      if ((C::kPairs && a.pairs.dropout.threshold != 0) || C::kDropout) {
        share[r] *= static_cast<float>(a.pairs.dropout.grown);
      }
      if (a.lse != nullptr && lane % 4 == 0 && i < a.q_tokens) {
        const bool natural = C::kPairs || C::kBias;
        const float lse = natural ? m[r] + log2f(total) * kLn2 : (m[r] + log2f(total)) * kLn2;
        a.lse[tile.batch * a.lse_stride[0] + tile.head * a.lse_stride[1] + i * a.lse_stride[2]] =
            seen[r] ? lse : -CUDART_INF_F;
      }
      // All that it saw lies below kLowest, or is hidden by the bias: who looks again knows.
      if (C::kBias && !seen[r] && this->may_see(tile, r)) wrong[r] = CUDART_NAN_F;
    }
    if constexpr (C::kParts > 1) {
      write_context(tile, share, seen, wrong);
    } else {
      put_context(share, seen, wrong);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const bool looked = seen[r] || (C::kBias && this->may_see(tile, r));
      const unsigned found = __ballot_sync(~0u, looked && wrong[r] != 0.0F);
      const int i = this->query_of_thread(tile, r);
      if (lane % 4 == 0 && (found >> lane & 15u) != 0 && i < a.q_tokens) list_for_care(tile, i);
    }
    hopper::threads_sync(8 + group, 128);
    const auto thread = static_cast<int>(threadIdx.x % 128);
    if (C::kParts == 1 && thread == 0) {
      hopper::box_store(&a.context, sm.q(x), {tile.row + group * 64, tile.head, tile.batch});
      hopper::stores_wait_read();
    }
    hopper::group_arrive(sm.q_free(x), thread);
  }
};

}  // namespace cephalo::kernels::cuda
