// Sums of rows by a warp whose lanes share the columns.
#pragma once

#include "cephalo/kernels/cuda/pairs.cuh"
#include "cephalo/kernels/cuda/simple.h"

namespace cephalo::kernels::cuda {

constexpr int kWarps = 4;                          // of a block
constexpr int kColumnsOfLane = 8;                  // in registers
constexpr int kColumns = kLanes * kColumnsOfLane;  // at once; wider rows take several turns

// Columns lane, lane + 32 .. from `first` on.
template <typename Sum>
struct ColumnSums {
  std::int64_t first, count;
  Sum sums[kColumnsOfLane];

  __device__ ColumnSums(std::int64_t from, std::int64_t columns) : first(from), count(columns) {
    for (int n = 0; n < kColumnsOfLane; ++n) sums[n] = 0;
  }
  __device__ std::int64_t column(int n) const { return first + n * kLanes + threadIdx.x % kLanes; }
  // The whole warp, with one row and one factor.
  __device__ void add(Sum factor, const Row& row) {
#pragma unroll
    for (int n = 0; n < kColumnsOfLane; ++n) {
      if (column(n) < count) sums[n] = fma(factor, row.at<Sum>(column(n)), sums[n]);
    }
  }
  __device__ void write(const Row& row, Sum factor) const {
#pragma unroll
    for (int n = 0; n < kColumnsOfLane; ++n) {
      if (column(n) < count) row.set(column(n), static_cast<Sum>(sums[n] * factor));
    }
  }
};

// f(lane) for every lane whose bit is set, in order; the whole warp calls it.
template <typename F>
__device__ inline void for_lanes(unsigned bits, const F& f) {
  while (bits != 0) {
    const int lane = __ffs(static_cast<int>(bits)) - 1;
    bits &= bits - 1;
    f(lane);
  }
}

// Query `row` of [batch, num_heads, q_tokens], or of keys.
struct RowPlace {
  std::int64_t b, h, i;
};
__device__ inline RowPlace place_of(std::int64_t row, std::int64_t heads, std::int64_t tokens) {
  return {row / tokens / heads, row / tokens % heads, row % tokens};
}

// The first row of this warp, and how far the next one is.
__device__ inline std::int64_t first_row() {
  return static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kLanes;
}
__device__ inline std::int64_t row_step() {
  return static_cast<std::int64_t>(gridDim.x) * kWarps;
}

// For lists that are nearly always empty: few blocks, so that finding this out takes no time.
constexpr unsigned kListBlocks = 528;

// Of a kernel that starts early, by all its threads: what the one before has written is there.
__device__ inline void wait_for_kernel_before() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// By one thread each of the first block. Nobody else looks at these while this kernel runs, or the
// one before it.
__device__ inline void clear_counters(unsigned* counters) {
  if (counters != nullptr && blockIdx.x == 0 && threadIdx.x < kCounters) counters[threadIdx.x] = 0;
}

// Blocks for so many rows; each warp takes several where there are more.
inline unsigned blocks_for(std::int64_t rows) {
  constexpr std::int64_t kMostBlocks = 1 << 16;
  const std::int64_t blocks = (rows + kWarps - 1) / kWarps;
  return static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks);
}

}  // namespace cephalo::kernels::cuda
