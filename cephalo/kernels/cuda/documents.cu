#include "cephalo/kernels/cuda/documents.h"

#include "cephalo/kernels/cuda/launch.cuh"

namespace cephalo::kernels::cuda {
namespace {

constexpr int kThreads = 256;

// The run that holds a token: the first of [first, last) that ends behind it.
__device__ inline int run_of(const TokenRun* runs, int first, int last, int token) {
  while (first < last) {
    const int middle = first + (last - first) / 2;
    if (runs[middle].end <= token) {
      first = middle + 1;
    } else {
      last = middle;
    }
  }
  return first;
}

__global__ void write_tokens(const __grid_constant__ DocumentSides a) {
  const DocumentSide& side = a.sides[blockIdx.z];
  const int b = static_cast<int>(blockIdx.y);
  const int n = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (n >= side.tokens) return;
  const int run = run_of(side.runs, side.runs_at[b], side.runs_at[b + 1], n);
  const std::int32_t document = side.runs[run].document;
  const std::int64_t at = static_cast<std::int64_t>(b) * side.tokens + n;
  side.numbers[at] = document;
  if (side.spans == nullptr) return;
  side.spans[at] = document < 0 ? IndexSpan{0, 0} : side.reaches[a.documents_at[b] + document];
}

}  // namespace

int write_documents(const DocumentSides& a, void* stream) {
  const int most = max(a.sides[0].tokens, a.sides[1].tokens);
  const dim3 grid((most + kThreads - 1) / kThreads, a.sequences, 2);
  if (grid.x == 0 || grid.y == 0) return cudaSuccess;
  return launch(write_tokens, {grid, kThreads}, stream, a);
}

}  // namespace cephalo::kernels::cuda
