#include "cephalo/kernels/cuda/copy.h"

#include <cuda_runtime_api.h>

#include <cstring>

#include "cephalo/kernels/cuda/elements.cuh"
#include "cephalo/kernels/cuda/launch.cuh"

namespace cephalo::kernels::cuda {
namespace {

struct CopyArgs {
  Rows to, from;
  std::int64_t shape[4];
  std::int64_t columns;  // of `from`
};

template <typename Sum>
__global__ void copy_elements(const __grid_constant__ CopyArgs a) {
  const std::int64_t count = a.shape[0] * a.shape[1] * a.shape[2] * a.shape[3];
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  std::int64_t n = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; n < count; n += step) {
    const std::int64_t d = n % a.shape[3];
    const std::int64_t i = n / a.shape[3] % a.shape[2];
    const std::int64_t h = n / a.shape[3] / a.shape[2] % a.shape[1];
    const std::int64_t b = n / a.shape[3] / a.shape[2] / a.shape[1];
    const Sum x = d < a.columns ? row_of(a.from, b, h, i).at<Sum>(d) : Sum{0};
    row_of(a.to, b, h, i).set(d, x);
  }
}

// Four columns to a thread, 16 or 32 threads to a row.
__global__ void split_columns(const __grid_constant__ SplitRows a, bool by_fours) {
  const unsigned fours = static_cast<unsigned>(a.width) / 4;
  const unsigned row = blockIdx.x * (blockDim.x / fours) + threadIdx.x / fours;  // below 2^30
  const unsigned head = row / static_cast<unsigned>(a.tokens);
  const unsigned b = head / static_cast<unsigned>(a.heads);
  const bool is_row = b < a.batch;
  const unsigned h = is_row ? head - b * static_cast<unsigned>(a.heads) : 0;
  const std::int64_t i = is_row ? row - std::int64_t{head} * a.tokens : 0;
  const Row from = row_of(a.from, is_row ? b : 0, h, i);
  const int first = static_cast<int>(threadIdx.x % fours) * 4;
  float x[4];
  if (by_fours && first < a.columns) {
    const auto four =
        *reinterpret_cast<const float4*>(static_cast<const float*>(from.data) + from.first + first);
    x[0] = four.x, x[1] = four.y, x[2] = four.z, x[3] = four.w;
  } else {
#pragma unroll
    for (int n = 0; n < 4; ++n) x[n] = first + n < a.columns ? from.at<float>(first + n) : 0.0F;
  }
  const bool finite = isfinite(x[0]) && isfinite(x[1]) && isfinite(x[2]) && isfinite(x[3]);
  const unsigned lanes = fours == 32 ? ~0U : 0xFFFFU << (threadIdx.x & 16U);  // of this row
  if (a.clears && (__ballot_sync(~0U, !finite) & lanes) != 0) {
    x[0] = x[1] = x[2] = x[3] = 0.0F;
    constexpr std::uint16_t kNan = 0x7FFF;
    if (a.marks != nullptr && first == 0 && is_row) a.marks[row * a.mark_stride] = kNan;
  }
  if (!is_row) return;
  std::uint16_t* to = a.to + (std::int64_t{row} * a.parts * a.width + first);
  for (int part = 0; part < a.parts; ++part, to += a.width) {
    std::uint16_t words[4];
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      words[n] = to_bf16(x[n]);
      x[n] -= from_bf16(words[n]);
    }
    *reinterpret_cast<ushort4*>(to) = {words[0], words[1], words[2], words[3]};
  }
}

// Arguments of a kernel are copied whole: a small one for the usual few numbers, one for the runs
// of documents. The large one is near the most that a kernel takes.
constexpr int kFewWords = 240, kSomeWords = 1000, kManyWords = 8000;
template <int kCount>
struct Words {
  std::uint32_t words[kCount];
};

template <int kCount>
__global__ void write_words(std::uint32_t* to, int count,
                            const __grid_constant__ Words<kCount> from) {
  for (int n = threadIdx.x; n < count; n += blockDim.x) to[n] = from.words[n];
}

// Four at a time, and what is left.
__global__ void clear_words(uint4* fours, std::size_t words) {
  const std::size_t first = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (std::size_t n = first; n < words / 4; n += std::size_t{gridDim.x} * blockDim.x) {
    fours[n] = {0, 0, 0, 0};
  }
  if (first < words % 4) reinterpret_cast<std::uint32_t*>(fours + words / 4)[first] = 0;
}

// A graph would remember the host's address, not what is there.
bool is_captured(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusActive;
  if (cudaStreamIsCapturing(stream, &status) != cudaSuccess) cudaGetLastError();
  return status != cudaStreamCaptureStatusNone;
}

template <int kCount>
int send_words(std::uint32_t* to, const unsigned char* from, std::size_t count, void* stream) {
  Words<kCount> part;
  std::memcpy(part.words, from, count * 4);
  return launch(write_words<kCount>, {1, 256}, stream, to, static_cast<int>(count), part);
}

}  // namespace

int copy_rows(const Rows& to, const Rows& from, const std::int64_t (&shape)[4],
              std::int64_t columns, void* stream) {
  const std::int64_t count = shape[0] * shape[1] * shape[2] * shape[3];
  if (count == 0) return cudaSuccess;
  constexpr std::int64_t kMostBlocks = 4096;
  const std::int64_t blocks = (count + 255) / 256;
  const CopyArgs args{to, from, {shape[0], shape[1], shape[2], shape[3]}, columns};
  const auto grid = static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks);
  const bool is_wide = from.dtype == DType::f64;
  return launch(is_wide ? copy_elements<double> : copy_elements<float>, {grid, 256}, stream, args);
}

int split_rows(const SplitRows& a, void* stream) {
  const std::int64_t rows = a.batch * a.heads * a.tokens;
  if (rows == 0) return cudaSuccess;
  const bool by_fours = a.from.dtype == DType::f32 && a.from.stride[3] == 1 && a.columns % 4 == 0 &&
                        reinterpret_cast<std::uintptr_t>(a.from.data) % sizeof(float4) == 0 &&
                        (a.from.stride[0] | a.from.stride[1] | a.from.stride[2]) % 4 == 0;
  const std::int64_t rows_at_once = 256 / (a.width / 4);
  const auto grid = static_cast<unsigned>((rows + rows_at_once - 1) / rows_at_once);
  return launch(split_columns, {grid, 256}, stream, a, by_fours);
}

int upload(void* to, const void* from, std::size_t bytes, void* stream) {
  auto* words = static_cast<std::uint32_t*>(to);
  const auto* source = static_cast<const unsigned char*>(from);
  const auto in = static_cast<cudaStream_t>(stream);
  // A copy of so few bytes is read before it returns, and costs the host less than a kernel.
  if (bytes <= kFewWords * 4 && !is_captured(in)) {
    if (const int error = launch_waiting()) return error;
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, in);
  }
  for (std::size_t left = bytes / 4; left > 0;) {
    const std::size_t count = left < kManyWords ? left : kManyWords;
    const auto send = count <= kFewWords    ? send_words<kFewWords>
                      : count <= kSomeWords ? send_words<kSomeWords>
                                            : send_words<kManyWords>;
    if (const int error = send(words, source, count, stream)) return error;
    words += count;
    source += count * 4;
    left -= count;
  }
  return cudaSuccess;
}

int clear(void* memory, std::size_t bytes, void* stream) {
  const std::size_t words = bytes / sizeof(std::uint32_t);
  if (words == 0) return cudaSuccess;
  constexpr std::size_t kMostBlocks = 2048;
  const std::size_t blocks = (words + 4 * 256 - 1) / (4 * 256);
  const auto grid = static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks);
  return launch(clear_words, {grid, 256}, stream, static_cast<uint4*>(memory), words);
}

}  // namespace cephalo::kernels::cuda
