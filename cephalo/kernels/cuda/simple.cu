// The forward pass of cuda_simple: a warp to a query.
#include <cuda_runtime_api.h>

#include "cephalo/kernels/cuda/launch.cuh"
#include "cephalo/kernels/cuda/rows.cuh"
#include "cephalo/kernels/cuda/simple.h"

namespace cephalo::kernels::cuda {
namespace {

// context = Σ weights · v over the visible keys, in the order of keys.
template <typename Sum>
__device__ void write_context(const Pairs<Sum>& pairs, std::int64_t i,
                              const RowSoftmax<Sum>& softmax) {
  const AttendArgs& a = pairs.a;
  const Row context = row_of(a.context, pairs.b, pairs.h, i);
  const KeySpan span = softmax.empty() ? KeySpan{0, 0} : pairs.span(i);
  const Sum share = softmax.empty() ? Sum{0} : static_cast<Sum>(1.0 / softmax.sum);
  for (std::int64_t first = 0; first < a.sizes.v_dim; first += kColumns) {
    ColumnSums<Sum> sums(first, a.sizes.v_dim);
    for (std::int64_t block = span.begin; block < span.end; block += kLanes) {
      const std::int64_t j = block + threadIdx.x % kLanes;
      Score<Sum> score{false, 0, 0};
      if (j < span.end) score = pairs.score(i, j);
      Sum weight = 0;
      if (score.visible) weight = exponential(score.value - softmax.top) * pairs.kept(i, j);
      for_lanes(__ballot_sync(kAll, score.visible), [&](int lane) {
        sums.add(__shfl_sync(kAll, weight, lane),
                 row_of(a.v, pairs.b, pairs.kv_head(), block + lane));
      });
    }
    sums.write(context, share);
  }
}

template <typename Sum>
__device__ void attend_row(const AttendArgs& a, std::int64_t row) {
  const RowPlace at = place_of(row, a.sizes.num_heads, a.sizes.q_tokens);
  const Pairs<Sum> pairs(a, at.b, at.h);
  const RowSoftmax<Sum> softmax = softmax_of_row(pairs, at.i);
  write_context(pairs, at.i, softmax);
  if (a.lse.data != nullptr && threadIdx.x % kLanes == 0) {
    row_of(a.lse, at.b, at.h, at.i).set(0, softmax.lse());
  }
}

template <typename Sum>
__global__ void attend_rows(const __grid_constant__ AttendArgs a) {
  const std::int64_t rows = a.sizes.batch * a.sizes.num_heads * a.sizes.q_tokens;
  for (std::int64_t row = first_row(); row < rows; row += row_step()) attend_row<Sum>(a, row);
}

template <typename Sum>
__global__ void attend_listed(const __grid_constant__ AttendArgs a,
                              const __grid_constant__ RowList list, unsigned* cleared) {
  clear_counters(cleared);
  wait_for_kernel_before();
  const std::int64_t rows = *list.count;
  for (std::int64_t n = first_row(); n < rows; n += row_step()) attend_row<Sum>(a, list.rows[n]);
}

}  // namespace

int attend_simple(const AttendArgs& a, void* stream) {
  const unsigned blocks = blocks_for(a.sizes.batch * a.sizes.num_heads * a.sizes.q_tokens);
  if (blocks == 0) return cudaSuccess;
  const bool is_wide = a.q.dtype == DType::f64;
  return launch(is_wide ? attend_rows<double> : attend_rows<float>, {blocks, kWarps * kLanes},
                stream, a);
}

int attend_listed_rows(const AttendArgs& a, const RowList& queries, unsigned* cleared,
                       void* stream) {
  // It has next to nothing to do, as a rule, and should not take long to say so.
  const LaunchSize size{
      .grid = kListBlocks, .threads = kWarps * kLanes, .shared_bytes = 0, .starts_early = true};
  return launch(attend_listed<float>, size, stream, a, queries, cleared);
}

}  // namespace cephalo::kernels::cuda
