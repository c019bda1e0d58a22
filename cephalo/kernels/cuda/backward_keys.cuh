// What a consumer of the backward pass has in its registers: 64 keys and their gradients, from the
// first look at them to the end, when they are stored.
#pragma once

#include "cephalo/kernels/cuda/backward_plan.cuh"

namespace cephalo::kernels::cuda {

template <typename C, int kGroup>
struct BackwardKeys {
  using Element = typename C::Element;
  static constexpr int kWidth = C::kWidth, kQueries = C::kQueries;

  const HopperBackward& a;
  typename C::Shared sm;
  const int warp, lane;
  float dk[C::kOwnColumns / 2], dv[C::kOwnColumns / 2];

  __device__ BackwardKeys(const HopperBackward& args, const typename C::Shared& shared)
      : a(args),
        sm(shared),
        warp(static_cast<int>(threadIdx.x / 32 % 4)),
        lane(static_cast<int>(threadIdx.x % 32)) {}

  // The first of a thread's two keys, 8 apart.
  __device__ int key_of_thread(const BackwardTile& tile) const {
    return tile.key + kGroup * 64 + warp * 16 + lane / 4;
  }

  // Rows past a sequence's end are often memory that nobody has written; weights of 0 do not help
  // against NaN. rows: [parts][width/64][count][64] from row `first` on. Both warpgroups share
  // them.
  __device__ void clear_rows(std::uint32_t rows, int count, int first) {
    constexpr int kChunks = C::kParts * kWidth / 8;  // of a row
    // Told here, and not kept in registers from the kernel's beginning on.
    const auto thread = static_cast<int>(hopper::ready(threadIdx.x) % 256);
    for (int n = thread; n < (count - first) * kChunks; n += 256) {
      const int row = first + n / kChunks, chunk = n % kChunks;
      const std::uint32_t at = rows + chunk / 8 * (count * 128) + row * 128 + chunk % 8 * 16;
      hopper::put_four(at, 0, 0, 0, 0);
    }
  }
  // v_full, parity: when v is there.
  __device__ void clear_unwritten_keys(const BackwardTile& tile, std::uint32_t v_full, int parity) {
    const int kv_len = shortened(a.rules[tile.batch * a.rule_stride].kv_len);
    if (kv_len >= min(tile.key + C::kKeys, a.kv_tokens)) return;
    hopper::barrier_wait(v_full, parity);
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

  // wrong: of the thread's two keys, not 0 where a gradient is not finite.
  __device__ void list_for_care(const BackwardTile& tile, const float (&wrong)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const unsigned found = __ballot_sync(~0u, wrong[r] != 0.0F);
      const int key = key_of_thread(tile) + 8 * r;
      if (lane % 4 == 0 && (found >> lane & 15u) != 0 && key < a.kv_tokens) {
        a.careful_rows[atomicAdd(a.careful, 1u)] =
            static_cast<unsigned>((tile.batch * a.num_kv_heads + tile.kv_head) * a.kv_tokens + key);
      }
    }
  }
  // acc · factor as rows of keys, to shared memory; those that are not finite are listed.
  __device__ void put_rows(const float (&acc)[kWidth / 2], float factor, std::uint32_t to,
                           const BackwardTile& tile) {
    // Told here, and not kept in registers from the kernel's beginning on.
    const auto thread = static_cast<int>(hopper::ready(threadIdx.x) % 128);
    const int row = thread / 32 * 16 + thread % 16, of_two = thread / 16 % 2;
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
      const int chunk = (2 * i + of_two) % 8;
      hopper::store_fragments(to + i / 4 * 8192 + row * 128 + (chunk ^ (row % 8)) * 16, w);
    }
    list_for_care(tile, wrong);
  }
  // dv leaves from where v was, dk from where dq of block i will be: k is free at once.
  __device__ void store(float dk_factor, float dv_factor, const BackwardTile& tile, int i) {
    const int thread = static_cast<int>(threadIdx.x % 128);
    const std::uint32_t v = sm.v() + kGroup * (64 * kWidth * 2);
    hopper::group_arrive(sm.k_free(), thread);
    put_rows(dv, dv_factor, v, tile);
    if (C::kTurns) hopper::barrier_wait(sm.dq_free(i % 2), (i / 2 & 1) ^ 1);
    put_rows(dk, dk_factor, sm.dk(kGroup, i), tile);
    hopper::fence_async();
    hopper::threads_sync(2 + kGroup, 128);
    if (thread == 0) {
      const hopper::BoxPlace rows{tile.key + kGroup * 64, tile.kv_head, tile.batch};
      hopper::box_store(&a.dv, v, rows);
      hopper::stores_commit();
      hopper::box_store(&a.dk, sm.dk(kGroup, i), rows);
      hopper::stores_wait_read<1>();
    }
    hopper::group_arrive(sm.v_free(), thread);
  }
};

}  // namespace cephalo::kernels::cuda
