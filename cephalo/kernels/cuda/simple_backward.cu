// The backward pass of cuda_simple. Weights are computed again from q, k and lse; every gradient is
// summed by one warp in the order of keys or of queries, so bits never change.
#include <cuda_runtime_api.h>

#include "cephalo/kernels/cuda/launch.cuh"
#include "cephalo/kernels/cuda/rows.cuh"
#include "cephalo/kernels/cuda/simple.h"

namespace cephalo::kernels::cuda {
namespace {

// What all pairs of a query share: weight = exp(score − shift) · share.
template <typename Sum>
struct RowNumbers {
  Sum shift;
  Sum share;  // 0: the query has looked at nothing
  Sum delta;  // Σ weights · dweights − dlse
};

template <typename Sum>
__device__ RowNumbers<Sum>& numbers_of(const BackwardArgs& g, const RowPlace& at) {
  const Sizes& s = g.forward.sizes;
  auto* all = static_cast<RowNumbers<Sum>*>(g.row_numbers);
  return all[(at.b * s.num_heads + at.h) * s.q_tokens + at.i];
}

// A pair on the way back.
template <typename Sum>
struct PairGradient {
  bool visible;
  Sum weight;  // after dropout: what v was multiplied by
  Sum dadded;  // of the score with what the mask added
  Sum dscore;  // of q · k
};

template <typename Sum>
__device__ Sum dweight_of(const BackwardArgs& g, const Pairs<Sum>& pairs, std::int64_t i,
                          std::int64_t j, Sum kept) {
  const Row dcontext = row_of(g.dcontext, pairs.b, pairs.h, i);
  const Row v = row_of(g.forward.v, pairs.b, pairs.kv_head(), j);
  return dot<Sum>(dcontext, v, g.forward.sizes.v_dim) * kept;
}

// Pair (i, j) inside the span.
template <typename Sum>
__device__ PairGradient<Sum> gradient_of(const BackwardArgs& g, const Pairs<Sum>& pairs,
                                         std::int64_t i, std::int64_t j) {
  const RowNumbers<Sum>& row = numbers_of<Sum>(g, {pairs.b, pairs.h, i});
  if (row.share == 0) return {false, 0, 0, 0};
  const Score<Sum> score = pairs.score(i, j);
  if (!score.visible) return {false, 0, 0, 0};
  const Sum kept = pairs.kept(i, j);
  const Sum weight = exponential(score.value - row.shift) * row.share;
  const Sum dadded = weight * (dweight_of(g, pairs, i, j, kept) - row.delta);
  Sum dscore = dadded;
  if (g.forward.softcap != 0.0) {
    const double tanh_of_score = static_cast<double>(score.capped) / g.forward.softcap;
    dscore = static_cast<Sum>(static_cast<double>(dscore) * (1.0 - tanh_of_score * tanh_of_score));
  }
  return {true, weight * kept, dadded, static_cast<Sum>(dscore * g.forward.scale)};
}

// Σ dcontext · context: Σ weights · dweights without a look at the keys.
template <typename Sum>
__device__ double delta_by_context(const BackwardArgs& g, const RowPlace& at) {
  const Row context = row_of(g.forward.context, at.b, at.h, at.i);
  const Row dcontext = row_of(g.dcontext, at.b, at.h, at.i);
  double sum = 0.0;
  for (std::int64_t d = threadIdx.x % kLanes; d < g.forward.sizes.v_dim; d += kLanes) {
    sum += dcontext.at<double>(d) * context.at<double>(d);
  }
  return sum_of_lanes(sum);
}

// The same from weights that are made anew: where lse has lost too much.
template <typename Sum>
__device__ double delta_by_keys(const BackwardArgs& g, const Pairs<Sum>& pairs, std::int64_t i,
                                const RowNumbers<Sum>& row) {
  const KeySpan span = pairs.span(i);
  double sum = 0.0;
  for (std::int64_t j = span.begin + threadIdx.x % kLanes; j < span.end; j += kLanes) {
    const Score<Sum> score = pairs.score(i, j);
    if (!score.visible) continue;
    const Sum weight = exponential(score.value - row.shift) * row.share;
    if (weight == 0) continue;  // dweight may be no number
    sum += static_cast<double>(weight) *
           static_cast<double>(dweight_of(g, pairs, i, j, pairs.kept(i, j)));
  }
  return sum_of_lanes(sum);
}

template <typename Sum>
__device__ RowNumbers<Sum> prepared_row(const BackwardArgs& g, const RowPlace& at) {
  const AttendArgs& a = g.forward;
  const Pairs<Sum> pairs(a, at.b, at.h);
  const Sum lse = row_of(a.lse, at.b, at.h, at.i).at<Sum>(0);
  RowNumbers<Sum> row{lse, lse == static_cast<Sum>(-CUDART_INF) ? Sum{0} : Sum{1}, 0};
  double delta;
  // Beyond 2^10 an lse is rounded too much for weights that add up to 1; a rectangle that lacks
  // keys has no such sum.
  if (g.has_all_keys && isfinite(lse) && fabs(lse) > kFarLse) {
    const RowSoftmax<Sum> softmax = softmax_of_row(pairs, at.i);
    row.shift = softmax.top;
    row.share = softmax.empty() ? Sum{0} : static_cast<Sum>(1.0 / softmax.sum);
    delta = delta_by_keys(g, pairs, at.i, row);
  } else {
    delta = delta_by_context<Sum>(g, at);
  }
  if (g.dlse.data != nullptr) delta -= row_of(g.dlse, at.b, at.h, at.i).at<double>(0);
  row.delta = static_cast<Sum>(delta);
  return row;
}

template <typename Sum>
__global__ void prepare_rows(const __grid_constant__ BackwardArgs g) {
  const Sizes& s = g.forward.sizes;
  const std::int64_t rows = s.batch * s.num_heads * s.q_tokens;
  for (std::int64_t n = first_row(); n < rows; n += row_step()) {
    const RowPlace at = place_of(n, s.num_heads, s.q_tokens);
    const RowNumbers<Sum> row = prepared_row<Sum>(g, at);
    if (threadIdx.x % kLanes == 0) numbers_of<Sum>(g, at) = row;
  }
}

// What a faster kernel reads of a row, and what its careful twin does.
__device__ void write_block_row(const BackwardArgs& g, const BlockRows& blocks, std::int64_t n,
                                const RowPlace& at, const RowNumbers<float>& row) {
  constexpr float kLog2e = 1.44269504F;
  if (blocks.share2 != nullptr) {
    blocks.lse2[n] = row.share == 0 ? CUDART_INF_F : row.shift;
    blocks.share2[n] = log2f(row.share);
  } else {
    blocks.lse2[n] = row.share == 0 ? CUDART_INF_F : (row.shift - logf(row.share)) * kLog2e;
  }
  blocks.delta[n] = row.share == 0 ? 0.0F : row.delta;  // of a row that nobody wrote: any number
  if (at.i < g.forward.sizes.q_tokens) numbers_of<float>(g, at) = row;
}

// Σ of the products of eight 16-bit elements.
__device__ inline float dot_of_eight(DType dtype, const uint4& x, const uint4& y) {
  const std::uint32_t left[4] = {x.x, x.y, x.z, x.w}, right[4] = {y.x, y.y, y.z, y.w};
  float sum = 0;
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const auto low = [](std::uint32_t word) { return static_cast<std::uint16_t>(word); };
    const auto high = [](std::uint32_t word) { return static_cast<std::uint16_t>(word >> 16); };
    if (dtype == DType::bf16) {
      sum = fmaf(from_bf16(low(left[n])), from_bf16(low(right[n])), sum);
      sum = fmaf(from_bf16(high(left[n])), from_bf16(high(right[n])), sum);
    } else {
      sum = fmaf(from_f16(low(left[n])), from_f16(low(right[n])), sum);
      sum = fmaf(from_f16(high(left[n])), from_f16(high(right[n])), sum);
    }
  }
  return sum;
}
__device__ inline uint4 eight_of(const Row& row, int n) {
  return reinterpret_cast<const uint4*>(static_cast<const std::uint16_t*>(row.data) + row.first)[n];
}

// Eight columns to a lane, so that a warp reads 256 columns of a few neighbouring rows at once, and
// several such sets before it uses the first.
constexpr int kSets = 4;
__global__ void prepare_blocks(const __grid_constant__ BackwardArgs g,
                               const __grid_constant__ BlockRows blocks) {
  const AttendArgs& a = g.forward;
  const int lanes = static_cast<int>(a.sizes.v_dim) / 8, rows_at_once = kLanes / lanes;
  const int part = static_cast<int>(threadIdx.x) % kLanes % lanes;
  // A block of rows is of one head, and its rows are whole sets of a warp; divisions of 32 bits are
  // many times faster.
  const auto first =
      static_cast<unsigned>(first_row() * kSets * rows_at_once + threadIdx.x % kLanes / lanes);
  const unsigned head = first / static_cast<unsigned>(blocks.tokens);
  const unsigned b = head / static_cast<unsigned>(a.sizes.num_heads);
  if (b >= a.sizes.batch) return;  // a whole warp does
  const std::int64_t h = head - b * static_cast<unsigned>(a.sizes.num_heads);
  const std::int64_t i = first - head * static_cast<unsigned>(blocks.tokens);
  const auto row_in = [&](int set) {
    const std::int64_t row = i + set * rows_at_once;
    return row < a.sizes.q_tokens ? row : 0;
  };
  uint4 x[kSets], y[kSets];
  float lse[kSets], dlse[kSets];
#pragma unroll
  for (int set = 0; set < kSets; ++set) {
    x[set] = eight_of(row_of(a.context, b, h, row_in(set)), part);
    y[set] = eight_of(row_of(g.dcontext, b, h, row_in(set)), part);
    lse[set] = row_of(a.lse, b, h, row_in(set)).at<float>(0);
    dlse[set] = g.dlse.data != nullptr ? row_of(g.dlse, b, h, row_in(set)).at<float>(0) : 0.0F;
  }
  bool far = false;
#pragma unroll
  for (int set = 0; set < kSets; ++set) {
    float sum = dot_of_eight(a.context.dtype, x[set], y[set]);
    for (int apart = lanes / 2; apart > 0; apart /= 2) sum += __shfl_xor_sync(kAll, sum, apart);
    const RowPlace at{b, h, i + set * rows_at_once};
    const bool is_row = at.i < a.sizes.q_tokens;
    RowNumbers<float> row{lse[set], lse[set] == -CUDART_INF_F ? 0.0F : 1.0F, sum - dlse[set]};
    if (!is_row) row = {0, 0, 0};
    if (part == 0) write_block_row(g, blocks, first + set * rows_at_once, at, row);
    far |= part == 0 && is_row && fabsf(lse[set]) > kFarLse;
  }
  // Few rows have an lse that the whole warp must look at again.
  for_lanes(__ballot_sync(kAll, far), [&](int lane) {
    const std::int64_t of_lane = __shfl_sync(kAll, first, lane);
#pragma unroll 1
    for (int set = 0; set < kSets; ++set) {
      const std::int64_t again = of_lane + set * rows_at_once;
      const RowPlace place = place_of(again, a.sizes.num_heads, blocks.tokens);
      if (place.i >= a.sizes.q_tokens) continue;
      const RowNumbers<float> exact = prepared_row<float>(g, place);
      if (threadIdx.x % kLanes == 0) write_block_row(g, blocks, again, place, exact);
    }
  });
}

// The same of rows that lie anyhow.
__global__ void prepare_blocks_anywhere(const __grid_constant__ BackwardArgs g,
                                        const __grid_constant__ BlockRows blocks) {
  const Sizes& s = g.forward.sizes;
  const std::int64_t rows = s.batch * s.num_heads * blocks.tokens;
  for (std::int64_t n = first_row(); n < rows; n += row_step()) {
    const RowPlace at = place_of(n, s.num_heads, blocks.tokens);
    RowNumbers<float> row{0, 0, 0};
    if (at.i < s.q_tokens) row = prepared_row<float>(g, at);
    if (threadIdx.x % kLanes == 0) write_block_row(g, blocks, n, at, row);
  }
}

// dq = Σ dscore · k, a warp to a query.
template <typename Sum>
__device__ void query_gradient(const BackwardArgs& g, const RowPlace& at) {
  const AttendArgs& a = g.forward;
  const Pairs<Sum> pairs(a, at.b, at.h);
  const KeySpan span = pairs.span(at.i);
  for (std::int64_t first = 0; first < a.sizes.head_dim; first += kColumns) {
    ColumnSums<Sum> dq(first, a.sizes.head_dim);
    for (std::int64_t block = span.begin; block < span.end; block += kLanes) {
      const std::int64_t j = block + threadIdx.x % kLanes;
      PairGradient<Sum> pair{false, 0, 0, 0};
      if (j < span.end) pair = gradient_of(g, pairs, at.i, j);
      for_lanes(__ballot_sync(kAll, pair.visible), [&](int lane) {
        dq.add(__shfl_sync(kAll, pair.dscore, lane),
               row_of(a.k, at.b, pairs.kv_head(), block + lane));
      });
    }
    dq.write(row_of(g.dq, at.b, at.h, at.i), 1);
  }
}

// dk = Σ dscore · q and dv = Σ weight · dcontext over the queries of all heads of the group, a warp
// to a key.
template <typename Sum>
__device__ void key_gradient(const BackwardArgs& g, const RowPlace& at) {
  const AttendArgs& a = g.forward;
  const Sizes& s = a.sizes;
  const std::int64_t group = s.num_heads / s.num_kv_heads;
  for (std::int64_t first = 0; first < max(s.head_dim, s.v_dim); first += kColumns) {
    ColumnSums<Sum> dk(first, s.head_dim);
    ColumnSums<Sum> dv(first, s.v_dim);
    for (std::int64_t h = at.h * group; h < (at.h + 1) * group; ++h) {
      const Pairs<Sum> pairs(a, at.b, h);
      for (std::int64_t block = 0; block < s.q_tokens; block += kLanes) {
        const std::int64_t i = block + threadIdx.x % kLanes;
        PairGradient<Sum> pair{false, 0, 0, 0};
        if (i < s.q_tokens && pairs.span(i).holds(at.i)) pair = gradient_of(g, pairs, i, at.i);
        for_lanes(__ballot_sync(kAll, pair.visible), [&](int lane) {
          dk.add(__shfl_sync(kAll, pair.dscore, lane), row_of(a.q, at.b, h, block + lane));
          dv.add(__shfl_sync(kAll, pair.weight, lane), row_of(g.dcontext, at.b, h, block + lane));
        });
      }
    }
    dk.write(row_of(g.dk, at.b, at.h, at.i), 1);
    dv.write(row_of(g.dv, at.b, at.h, at.i), 1);
  }
}

template <typename Sum>
__global__ void query_gradients(const __grid_constant__ BackwardArgs g) {
  const Sizes& s = g.forward.sizes;
  const std::int64_t rows = s.batch * s.num_heads * s.q_tokens;
  for (std::int64_t n = first_row(); n < rows; n += row_step()) {
    query_gradient<Sum>(g, place_of(n, s.num_heads, s.q_tokens));
  }
}

template <typename Sum>
__global__ void key_gradients(const __grid_constant__ BackwardArgs g) {
  const Sizes& s = g.forward.sizes;
  const std::int64_t rows = s.batch * s.num_kv_heads * s.kv_tokens;
  for (std::int64_t n = first_row(); n < rows; n += row_step()) {
    key_gradient<Sum>(g, place_of(n, s.num_kv_heads, s.kv_tokens));
  }
}

__global__ void gradients_of_lists(const __grid_constant__ BackwardArgs g,
                                   const __grid_constant__ RowList queries,
                                   const __grid_constant__ RowList keys, unsigned* cleared) {
  clear_counters(cleared);
  const Sizes& s = g.forward.sizes;
  const std::int64_t query_rows = *queries.count, key_rows = *keys.count;
  for (std::int64_t n = first_row(); n < query_rows; n += row_step()) {
    query_gradient<float>(g, place_of(queries.rows[n], s.num_heads, s.q_tokens));
  }
  for (std::int64_t n = first_row(); n < key_rows; n += row_step()) {
    key_gradient<float>(g, place_of(keys.rows[n], s.num_kv_heads, s.kv_tokens));
  }
}

struct IndexRange {
  std::int64_t begin, count;
};
// The indices of an axis of `full` at which index n of the bias's own axis of `size` was used.
__device__ inline IndexRange repeated(std::int64_t n, std::int64_t size, std::int64_t full) {
  return size == full ? IndexRange{n, 1} : IndexRange{0, full};
}

// dbias = dadded, summed over the axes along which it was repeated; a warp to a number.
template <typename Sum>
__global__ void bias_gradients(const __grid_constant__ BackwardArgs g,
                               const __grid_constant__ BiasGradient to) {
  const Sizes& s = g.forward.sizes;
  const std::int64_t(&shape)[4] = to.shape;
  const std::int64_t numbers = shape[0] * shape[1] * shape[2] * shape[3];
  for (std::int64_t n = first_row(); n < numbers; n += row_step()) {
    const std::int64_t j_own = n % shape[3];
    const RowPlace own = place_of(n / shape[3], shape[1], shape[2]);
    const IndexRange b = repeated(own.b, shape[0], s.batch);
    const IndexRange h = repeated(own.h, shape[1], s.num_heads);
    const IndexRange i = repeated(own.i, shape[2], s.q_tokens);
    const IndexRange j = repeated(j_own, shape[3], s.kv_tokens);
    double sum = 0.0;
    const std::int64_t pairs = b.count * h.count * i.count * j.count;
    for (std::int64_t m = threadIdx.x % kLanes; m < pairs; m += kLanes) {
      const RowPlace of = place_of(m / j.count, h.count, i.count);
      const Pairs<Sum> head(g.forward, b.begin + of.b, h.begin + of.h);
      const std::int64_t query = i.begin + of.i;
      const std::int64_t key = j.begin + m % j.count;
      if (!head.span(query).holds(key)) continue;
      sum += static_cast<double>(gradient_of(g, head, query, key).dadded);
    }
    sum = sum_of_lanes(sum);
    if (threadIdx.x % kLanes == 0) row_of(to.dbias, own.b, own.h, own.i).set(j_own, sum);
  }
}

template <typename Sum>
int launch_backward(const BackwardArgs& g, void* stream) {
  const Sizes& s = g.forward.sizes;
  const unsigned queries = blocks_for(s.batch * s.num_heads * s.q_tokens);
  const unsigned keys = blocks_for(s.batch * s.num_kv_heads * s.kv_tokens);
  constexpr int kThreads = kWarps * kLanes;
  int error = cudaSuccess;
  if (queries > 0) {
    error = launch(prepare_rows<Sum>, {queries, kThreads}, stream, g);
    if (error == cudaSuccess) error = launch(query_gradients<Sum>, {queries, kThreads}, stream, g);
  }
  if (error == cudaSuccess && keys > 0) {
    error = launch(key_gradients<Sum>, {keys, kThreads}, stream, g);
  }
  return error;
}

}  // namespace

std::int64_t row_numbers_bytes(const Sizes& s, DType q_dtype) {
  const std::int64_t rows = s.batch * s.num_heads * s.q_tokens;
  const std::size_t each =
      q_dtype == DType::f64 ? sizeof(RowNumbers<double>) : sizeof(RowNumbers<float>);
  return rows * static_cast<std::int64_t>(each);
}

int attend_backward_simple(const BackwardArgs& g, void* stream) {
  return g.forward.q.dtype == DType::f64 ? launch_backward<double>(g, stream)
                                         : launch_backward<float>(g, stream);
}

int prepare_backward(const BackwardArgs& g, const BlockRows& blocks, void* stream) {
  const Sizes& s = g.forward.sizes;
  const std::int64_t rows = s.batch * s.num_heads * blocks.tokens;
  const bool has_width = s.v_dim == 64 || s.v_dim == 128;
  if (has_width && has_eights(g.forward.context) && has_eights(g.dcontext)) {
    const std::int64_t at_once = kWarps * kSets * (256 / s.v_dim);
    const auto grid = static_cast<unsigned>((rows + at_once - 1) / at_once);
    return launch(prepare_blocks, {grid, kWarps * kLanes}, stream, g, blocks);
  }
  return launch(prepare_blocks_anywhere, {blocks_for(rows), kWarps * kLanes}, stream, g, blocks);
}

int listed_gradients(const BackwardArgs& g, const RowList& queries, const RowList& keys,
                     unsigned* cleared, void* stream) {
  return launch(gradients_of_lists, {kListBlocks, kWarps * kLanes}, stream, g, queries, keys,
                cleared);
}

int bias_gradient_simple(const BackwardArgs& g, const BiasGradient& to, void* stream) {
  const unsigned blocks = blocks_for(to.shape[0] * to.shape[1] * to.shape[2] * to.shape[3]);
  if (blocks == 0) return cudaSuccess;
  const bool is_wide = g.forward.q.dtype == DType::f64;
  return launch(is_wide ? bias_gradients<double> : bias_gradients<float>, {blocks, kWarps * kLanes},
                stream, g, to);
}

}  // namespace cephalo::kernels::cuda
