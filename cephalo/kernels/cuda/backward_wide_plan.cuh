// What a block of the wide backward kernel is made of, where things lie in its shared memory, and
// the thread that loads them.
#pragma once

#include "cephalo/kernels/cuda/backward_plan.cuh"

namespace cephalo::kernels::cuda {

template <typename C>
struct WideBackwardShared;

template <typename Element_, int kColumns, int kPartCount>
struct WideBackwardConfig : Looks<LooksAt::pairs> {
  using Element = Element_;
  using Shared = WideBackwardShared<WideBackwardConfig>;
  static constexpr int kWidth = kColumns, kParts = kPartCount, kThreads = 384;
  static constexpr int kKeys = 64, kQueries = 64, kOwnColumns = kWidth / 2;
  static constexpr bool kIsWide = true;
  static constexpr int kStages = kParts == 3 ? 1 : 2;
  static constexpr int kRowsBytes = 64 * kWidth * kParts * 2;  // of k, v, or a stage of q, dcontext
  static constexpr int kDsBytes = 64 * 64 * kParts * 2, kNumbersBytes = kQueries * 4;
  static constexpr int kDsAt = (2 + 2 * kStages) * kRowsBytes, kNumbersAt = kDsAt + kDsBytes;
  static constexpr int kBarriersAt = kNumbersAt + 3 * kStages * kNumbersBytes;
  static constexpr int kSharedBytes = kBarriersAt + 128;
  static_assert(kSharedBytes <= 232448);
  static constexpr int kConsumerRegisters = 232, kProducerRegisters = 40;
};

// k, v, q [kStages] and dcontext [kStages]: [parts][width/64][64][64]; ds [parts][64 keys][64
// queries], all with the 128-byte swizzle; lse, delta and share [kStages]; barriers.
template <typename C>
struct WideBackwardShared {
  std::uint32_t base;
  __device__ std::uint32_t rows(int n) const { return base + n * C::kRowsBytes; }
  __device__ std::uint32_t k() const { return rows(0); }
  __device__ std::uint32_t v() const { return rows(1); }
  __device__ std::uint32_t q(int s) const { return rows(2 + 2 * s); }
  __device__ std::uint32_t dcontext(int s) const { return rows(3 + 2 * s); }
  __device__ std::uint32_t ds() const { return base + C::kDsAt; }
  __device__ std::uint32_t numbers(int n) const {
    return base + C::kNumbersAt + n * C::kNumbersBytes;
  }
  __device__ std::uint32_t lse(int s) const { return numbers(3 * s); }
  __device__ std::uint32_t delta(int s) const { return numbers(3 * s + 1); }
  __device__ std::uint32_t share(int s) const { return numbers(3 * s + 2); }
  __device__ std::uint32_t barrier(int n) const { return base + C::kBarriersAt + 8 * n; }
  __device__ std::uint32_t kv_full() const { return barrier(0); }
  __device__ std::uint32_t q_full(int s) const { return barrier(1 + s); }
  __device__ std::uint32_t dcontext_full(int s) const { return barrier(3 + s); }
  __device__ std::uint32_t q_free(int s) const { return barrier(5 + s); }
  __device__ std::uint32_t dcontext_free(int s) const { return barrier(7 + s); }
  __device__ std::uint32_t ticket() const { return barrier(9); }
};

// Named barriers: both warpgroups; ds of the last block has been read; a warpgroup's own.
enum WideBarrier { kBothGroups = 1, kDsIsRead = 2, kOwnGroup = 3 };

// ---- the producer: one thread -------------------------------------------------------------------
template <typename C>
__device__ inline void load_wide_blocks(const HopperBackward& a, const WideBackwardShared<C>& sm,
                                        const BackwardTile& tile) {
  const hopper::BoxPlace keys{tile.key, tile.kv_head, tile.batch};
  hopper::barrier_expect(sm.kv_full(), 2 * C::kRowsBytes);
  hopper::box_load(sm.k(), &a.k, sm.kv_full(), keys);
  hopper::box_load(sm.v(), &a.v, sm.kv_full(), keys);
  BackwardWalk<C> walk(a, tile);
  for (int i = 0; i < walk.steps; ++i, walk.next()) {
    const int s = i % C::kStages, parity = (i / C::kStages & 1) ^ 1;
    const std::int64_t row = walk.row();
    const hopper::BoxPlace queries{walk.block * C::kQueries, walk.head, tile.batch};
    hopper::barrier_wait(sm.q_free(s), parity);
    hopper::barrier_expect(sm.q_full(s), C::kRowsBytes + 2 * C::kNumbersBytes);
    hopper::box_load(sm.q(s), &a.q, sm.q_full(s), queries);
    hopper::bytes_load(sm.lse(s), a.lse2 + row, C::kNumbersBytes, sm.q_full(s));
    hopper::bytes_load(sm.share(s), a.share2 + row, C::kNumbersBytes, sm.q_full(s));
    hopper::barrier_wait(sm.dcontext_free(s), parity);
    hopper::barrier_expect(sm.dcontext_full(s), C::kRowsBytes + C::kNumbersBytes);
    hopper::box_load(sm.dcontext(s), &a.dcontext, sm.dcontext_full(s), queries);
    hopper::bytes_load(sm.delta(s), a.delta + row, C::kNumbersBytes, sm.dcontext_full(s));
  }
}

}  // namespace cephalo::kernels::cuda
