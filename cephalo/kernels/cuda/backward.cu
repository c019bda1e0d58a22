// Which instance of the backward kernel, its launch, and dq's way to its rows.
#include "cephalo/kernels/cuda/elements.cuh"
#include "cephalo/kernels/cuda/instances.cuh"
#include "cephalo/kernels/cuda/launch.cuh"

namespace cephalo::kernels::cuda {
namespace {

__device__ inline std::uint32_t picked(const std::uint32_t (&w)[4], int n) {
  const std::uint32_t even = n & 2 ? w[2] : w[0], odd = n & 2 ? w[3] : w[1];
  return n & 1 ? odd : even;
}

// Four lanes hold word n of four chunks each; afterwards lane n of them holds chunk n.
__device__ inline uint4 chunk_of_four(const std::uint32_t (&w)[4], int lane) {
  const int n = lane % 4;
  std::uint32_t from[4];  // lane n ^ apart has sent it
#pragma unroll
  for (int apart = 0; apart < 4; ++apart) {
    from[apart] = __shfl_xor_sync(~0u, picked(w, n ^ apart), apart);
  }
  return {picked(from, n), picked(from, n ^ 1), picked(from, n ^ 2), picked(from, n ^ 3)};
}

__device__ inline std::uint32_t two_as(DType dtype, float x, float y) {
  return dtype == DType::bf16 ? hopper::pack(hopper::Bf16{}, x, y)
                              : hopper::pack(hopper::F16{}, x, y);
}

// A warp to 16 rows of 64 columns, as a warp of the kernel handed them over: four neighbours of a
// thread are two columns of row lane / 4 and two of the row 8 below.
template <bool kEights>
__global__ void write_rows(const __grid_constant__ HopperQueryGradient a) {
  const int lane = static_cast<int>(threadIdx.x % 32), queries = kDqBlock / a.width;
  const unsigned blocks = (static_cast<unsigned>(a.q_tokens) + queries - 1) / queries;
  const unsigned unit = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;  // below 2^31
  const unsigned number = unit / 8, head = number / blocks, block = number - head * blocks;
  const unsigned b = head / static_cast<unsigned>(a.num_heads);
  if (b >= a.batch) return;
  const unsigned h = head - b * static_cast<unsigned>(a.num_heads);
  const int half = static_cast<int>(unit % 8 / 4), warp = static_cast<int>(unit % 4);
  const std::int64_t i = static_cast<std::int64_t>(block) * queries +
                         (a.width == 64 ? 64 * half : 0) + warp * 16 + lane / 4;
  const int column = a.width == 128 ? 64 * half : 0;
  const auto* from =
      reinterpret_cast<const float4*>(a.from + std::int64_t{number} * kDqBlock + half * 4096) +
      warp * 32 + lane;
  const bool is_unseen = a.turns != nullptr && a.turns[number] == 0;
  float x[2][8][2], wrong[2] = {0, 0};
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    const float4 four = is_unseen ? float4{} : from[n * 128];
    x[0][n][0] = four.x * a.scale;
    x[0][n][1] = four.y * a.scale;
    x[1][n][0] = four.z * a.scale;
    x[1][n][1] = four.w * a.scale;
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const bool is_row = i + 8 * r < a.q_tokens;
    const Row to = row_of(a.dq, b, h, is_row ? i + 8 * r : 0);
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      wrong[r] = fmaf(x[r][n][0], 0.0F, fmaf(x[r][n][1], 0.0F, wrong[r]));
      const int at = column + 8 * n + 2 * (lane % 4);
      if (kEights || !is_row) continue;
      if (at < a.columns) to.set(at, x[r][n][0]);
      if (at + 1 < a.columns) to.set(at + 1, x[r][n][1]);
    }
    if (kEights) {
#pragma unroll
      for (int n = 0; n < 8; n += 4) {
        const std::uint32_t w[4] = {two_as(a.dq.dtype, x[r][n][0], x[r][n][1]),
                                    two_as(a.dq.dtype, x[r][n + 1][0], x[r][n + 1][1]),
                                    two_as(a.dq.dtype, x[r][n + 2][0], x[r][n + 2][1]),
                                    two_as(a.dq.dtype, x[r][n + 3][0], x[r][n + 3][1])};
        const uint4 chunk = chunk_of_four(w, lane);
        const int first = column + 8 * (n + lane % 4);
        auto* at = static_cast<std::uint16_t*>(a.dq.data) + to.first + first;
        if (is_row && first < a.columns) *reinterpret_cast<uint4*>(at) = chunk;
      }
    }
    const unsigned found = __ballot_sync(~0u, wrong[r] != 0.0F);
    if (lane % 4 == 0 && (found >> lane & 15u) != 0 && is_row) {
      a.careful_rows[atomicAdd(a.careful, 1u)] =
          static_cast<unsigned>(head * a.q_tokens + i + 8 * r);
    }
  }
}

// The same from rows, a warp to each.
__global__ void scale_rows(const __grid_constant__ HopperQueryGradient a) {
  const unsigned lane = threadIdx.x % 32;
  const unsigned row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;  // below 2^30
  const unsigned head = row / static_cast<unsigned>(a.q_tokens);
  const unsigned b = head / static_cast<unsigned>(a.num_heads);
  if (b >= a.batch) return;
  const std::int64_t i = row - std::int64_t{head} * a.q_tokens;
  const Row to = row_of(a.dq, b, head - b * static_cast<unsigned>(a.num_heads), i);
  const float* from = a.from + (head * a.row_head + i) * a.width;
  float wrong = 0;
  for (int d = static_cast<int>(lane); d < a.columns; d += 32) {
    const float x = from[d] * a.scale;
    wrong = fmaf(x, 0.0F, wrong);
    to.set(d, x);
  }
  const unsigned found = __ballot_sync(~0u, wrong != 0.0F);
  if (lane == 0 && found != 0) a.careful_rows[atomicAdd(a.careful, 1u)] = row;
}

}  // namespace

BackwardBoxes backward_boxes(const Instance& instance) {
  const auto* found = find_instance<BackwardEntry>(instance);
  return found != nullptr ? found->boxes : BackwardBoxes{0, 0, 0, 0};
}

int attend_backward_hopper(const Instance& instance, bool by_turns, const HopperBackward& args,
                           void* stream) {
  const auto* found = find_instance<BackwardEntry>(instance);
  if (found == nullptr) return cudaErrorInvalidDeviceFunction;
  const auto in = static_cast<cudaStream_t>(stream);
  return by_turns ? found->by_turns(args, in) : found->in_any_order(args, in);
}

bool adds_by_turns(const Instance& instance, bool any_order) {
  const auto* found = find_instance<BackwardEntry>(instance);
  return !any_order || found == nullptr || found->in_any_order == nullptr;
}

int write_query_gradient(const HopperQueryGradient& a, void* stream) {
  if (a.row_head > 0) {
    const std::int64_t rows = a.batch * a.num_heads * a.q_tokens;
    return launch(scale_rows, {static_cast<unsigned>((rows + 7) / 8), 256}, stream, a);
  }
  const std::int64_t queries = kDqBlock / a.width;
  const std::int64_t warps = a.batch * a.num_heads * ((a.q_tokens + queries - 1) / queries) * 8;
  const auto grid = static_cast<unsigned>((warps + 7) / 8);
  const bool by_eights = has_eights(a.dq) && a.columns % 8 == 0;
  return launch(by_eights ? write_rows<true> : write_rows<false>, {grid, 256}, stream, a);
}

}  // namespace cephalo::kernels::cuda
