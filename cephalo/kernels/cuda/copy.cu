#include "cephalo/kernels/cuda/copy.h"

#include <cuda_runtime_api.h>

#include <cstring>

#include "cephalo/kernels/cuda/elements.cuh"

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

template <int kCount>
void send_words(std::uint32_t* to, const unsigned char* from, std::size_t count,
                cudaStream_t stream) {
  Words<kCount> part;
  std::memcpy(part.words, from, count * 4);
  write_words<kCount><<<1, 256, 0, stream>>>(to, static_cast<int>(count), part);
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
  const auto in = static_cast<cudaStream_t>(stream);
  if (from.dtype == DType::f64) {
    copy_elements<double><<<grid, 256, 0, in>>>(args);
  } else {
    copy_elements<float><<<grid, 256, 0, in>>>(args);
  }
  return cudaGetLastError();
}

int upload(void* to, const void* from, std::size_t bytes, void* stream) {
  auto* words = static_cast<std::uint32_t*>(to);
  const auto* source = static_cast<const unsigned char*>(from);
  const auto in = static_cast<cudaStream_t>(stream);
  for (std::size_t left = bytes / 4; left > 0;) {
    const std::size_t count = left < kManyWords ? left : kManyWords;
    if (count <= kFewWords) {
      send_words<kFewWords>(words, source, count, in);
    } else if (count <= kSomeWords) {
      send_words<kSomeWords>(words, source, count, in);
    } else {
      send_words<kManyWords>(words, source, count, in);
    }
    words += count;
    source += count * 4;
    left -= count;
  }
  return cudaGetLastError();
}

int clear(void* memory, std::size_t bytes, void* stream) {
  return cudaMemsetAsync(memory, 0, bytes, static_cast<cudaStream_t>(stream));
}

}  // namespace cephalo::kernels::cuda
