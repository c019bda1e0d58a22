#include "cephalo/kernels/cuda/device_parts.h"

#include <cuda_runtime_api.h>

#include <climits>

#include "cephalo/kernels/cuda/launch.cuh"

namespace cephalo::kernels::cuda {
namespace {

constexpr int kThreads = 256, kLanes = 32, kWarps = kThreads / kLanes;
constexpr unsigned kAll = ~0U;
constexpr int kHighest = INT_MAX - 2;

__device__ inline std::int64_t number_at(const DeviceNumbers& numbers, std::int64_t at) {
  return numbers.is_wide ? static_cast<const std::int64_t*>(numbers.data)[at]
                         : static_cast<const std::int32_t*>(numbers.data)[at];
}
__device__ inline std::int64_t clamped(std::int64_t x, std::int64_t low, std::int64_t high) {
  return min(max(x, low), high);
}

// ---- rules --------------------------------------------------------------------------------------
// The other way round than BoundMask, which has all lengths before it makes a rule: a rule that was
// made for whole lengths is shortened.
__global__ void change_rule(PositionRule* rules, const PositionRule* from, std::int64_t from_stride,
                            const __grid_constant__ RuleParts parts) {
  const std::int64_t b = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (b >= parts.count) return;
  PositionRule rule = from[b * from_stride];
  if (parts.kv_lengths.data != nullptr) {
    const std::int64_t given = number_at(parts.kv_lengths, b * parts.kv_lengths.stride[0]);
    const std::int64_t length = clamped(given, 0, parts.kv_whole);
    rule.kv_len = clamped(length - parts.kv_begin, 0, parts.kv_tokens);
    if (parts.is_from_the_end) rule.shift -= parts.kv_whole - length;
  }
  if (parts.q_lengths.data != nullptr) {
    const std::int64_t given = number_at(parts.q_lengths, b * parts.q_lengths.stride[0]);
    const std::int64_t length = clamped(given, 0, parts.q_whole);
    rule.q_len = clamped(length - parts.q_begin, 0, parts.q_tokens);
    if (parts.is_from_the_end) rule.shift += parts.q_whole - length;
  }
  if (parts.prefix.data != nullptr) {
    const std::int64_t given = number_at(parts.prefix, b * parts.prefix.stride[0]);
    rule.prefix = min(rule.prefix, clamped(given, 0, parts.kv_whole) - parts.kv_begin);
  }
  rules[b] = rule;
}

__global__ void add_slope(double* slopes, const double* from, const float* more,
                          std::int64_t stride, std::int64_t count) {
  const std::int64_t h = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (h < count) slopes[h] = from[h] + static_cast<double>(fmaxf(more[h * stride], 0.0F));
}

unsigned blocks_for(std::int64_t count, int each) {
  return static_cast<unsigned>((count + each - 1) / each);
}

// ---- documents ----------------------------------------------------------------------------------
__host__ __device__ inline int blocks_of(int tokens) {
  return (tokens + kDocumentQueries - 1) / kDocumentQueries;
}
__host__ __device__ inline int tiles_of(int tokens) {
  return (tokens + kDocumentKeys - 1) / kDocumentKeys;
}
__device__ inline IndexSpan nothing() {
  return {INT_MAX, 0};
}
__device__ inline bool meet(const IndexSpan& a, const IndexSpan& b) {
  return a.begin < b.end && b.begin < a.end;
}
__device__ inline IndexSpan over_lanes(const IndexSpan& own) {
  return {__reduce_min_sync(kAll, own.begin), __reduce_max_sync(kAll, own.end)};
}

// Of documents by their ends: how many end before or at a token; below 0 behind all of them.
__device__ inline std::int64_t document_at(const DocumentIds::Side& side, std::int64_t token) {
  std::int32_t low = 1, high = side.ends;  // the first end behind the token is in [low, high]
  while (low < high) {
    const std::int32_t middle = low + (high - low) / 2;
    if (number_at(side.ids, middle * side.ids.stride[1]) <= token) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < side.ends ? low - 1 : -1;
}

// A block of 64 threads to 64 tokens: their numbers, and which documents are among them.
__global__ void number_tokens(const __grid_constant__ DocumentIds a) {
  __shared__ IndexSpan halves[2];
  const DocumentIds::Side& side = blockIdx.z == 0 ? a.q : a.kv;
  const int b = static_cast<int>(blockIdx.y), block = static_cast<int>(blockIdx.x);
  if (block >= blocks_of(side.tokens)) return;
  const int token = block * kDocumentQueries + static_cast<int>(threadIdx.x);
  const bool is_there = token < side.tokens;
  std::int32_t number = -1;
  if (is_there) {
    const std::int64_t id =
        side.ends > 0 ? document_at(side, std::int64_t{side.begin} + token)
                      : number_at(side.ids, b * side.ids.stride[0] + token * side.ids.stride[1]);
    number = static_cast<std::int32_t>(clamped(id, -1, kHighest));
    side.numbers[std::int64_t{b} * side.tokens + token] = number;
  }
  const IndexSpan half = over_lanes(number < 0 ? nothing() : IndexSpan{number, number + 1});
  if (threadIdx.x % kLanes == 0) halves[threadIdx.x / kLanes] = half;
  const bool some_of_none = __syncthreads_or(is_there && number < 0) != 0;
  if (threadIdx.x != 0) return;
  const IndexSpan all{min(halves[0].begin, halves[1].begin), max(halves[0].end, halves[1].end)};
  const std::int64_t at = std::int64_t{b} * blocks_of(side.tokens) + block;
  side.documents[at] = all;
  side.one[at] = !some_of_none && all.begin + 1 == all.end ? all.begin : -1;
}

// The blocks of `side` that may hold a document of these; a whole warp looks.
__device__ inline IndexSpan blocks_that_meet(const IndexSpan* blocks, int count,
                                             const IndexSpan& first, const IndexSpan& second) {
  IndexSpan found = nothing();
  for (int n = static_cast<int>(threadIdx.x % kLanes); n < count; n += kLanes) {
    if (!meet(blocks[n], first) && !meet(blocks[n], second)) continue;
    found = {min(found.begin, n), n + 1};
  }
  return over_lanes(found);
}

// A warp to a block of queries, then to a tile of keys.
__global__ void find_reaches(const __grid_constant__ DocumentIds a) {
  const int b = static_cast<int>(blockIdx.y);
  const int n = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x / kLanes);
  const int q_blocks = blocks_of(a.q.tokens), kv_blocks = blocks_of(a.kv.tokens);
  const int tiles = tiles_of(a.kv.tokens);
  const bool is_first = threadIdx.x % kLanes == 0;
  const IndexSpan* queries = a.q.documents + std::int64_t{b} * q_blocks;
  const IndexSpan* keys = a.kv.documents + std::int64_t{b} * kv_blocks;
  if (n < q_blocks) {
    const IndexSpan found = blocks_that_meet(keys, kv_blocks, queries[n], nothing());
    IndexSpan tokens = nothing();
    if (found.end > 0) {
      tokens = {found.begin * kDocumentQueries, min(found.end * kDocumentQueries, a.kv.tokens)};
    }
    if (is_first) a.keys[std::int64_t{b} * q_blocks + n] = tokens;
  } else if (n < q_blocks + tiles) {
    static_assert(kDocumentKeys == 2 * kDocumentQueries);
    const int tile = n - q_blocks, other = min(2 * tile + 1, kv_blocks - 1);
    const IndexSpan found = blocks_that_meet(queries, q_blocks, keys[2 * tile], keys[other]);
    if (is_first) a.queries[std::int64_t{b} * tiles + tile] = found;
  }
}

// The largest of this lane's and all before it.
__device__ inline int running_max(int x) {
  const int lane = static_cast<int>(threadIdx.x);
  for (int apart = 1; apart < kLanes; apart *= 2) {
    const int before = __shfl_up_sync(kAll, x, apart);
    if (lane >= apart) x = max(x, before);
  }
  return x;
}

// A warp to a sequence: widens spans of tiles until neither end falls, and counts the tiles before
// each block of queries. The backward pass waits by these numbers, so they must fit together
// whatever the ids are.
__global__ void order_tiles(const __grid_constant__ DocumentIds a) {
  const int tiles = tiles_of(a.kv.tokens), blocks = blocks_of(a.q.tokens);
  IndexSpan* spans = a.queries + std::int64_t{blockIdx.x} * tiles;
  const int lane = static_cast<int>(threadIdx.x);
  int end = 0, begin = INT_MAX / kDocumentQueries;  // far behind any block
  for (int first = 0; first < tiles; first += kLanes) {
    const int tile = first + lane;
    end = max(end, running_max(tile < tiles ? spans[tile].end : 0));
    if (tile < tiles) spans[tile].end = end;
    end = __shfl_sync(kAll, end, kLanes - 1);
  }
  for (int first = 0; first < tiles; first += kLanes) {
    const int tile = tiles - 1 - first - lane;
    begin = min(begin, -running_max(tile >= 0 ? -spans[tile].begin : -INT_MAX));
    if (tile >= 0) spans[tile].begin = begin;
    begin = __shfl_sync(kAll, begin, kLanes - 1);
  }
  __syncwarp();
  for (int block = lane; block < blocks; block += kLanes) {
    int low = 0, high = tiles;
    while (low < high) {
      const int middle = low + (high - low) / 2;
      if (spans[middle].end <= block) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    a.first_tile[std::int64_t{blockIdx.x} * blocks + block] = low;
  }
}

// The first token whose number is not below `wanted`; of none counts as above all.
__device__ inline int first_not_below(const std::int32_t* numbers, int tokens, int wanted) {
  int low = 0, high = tokens;
  while (low < high) {
    const int middle = low + (high - low) / 2;
    const int number = numbers[middle] < 0 ? INT_MAX : numbers[middle];
    if (number < wanted) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

__global__ void find_spans(const __grid_constant__ DocumentIds a) {
  const DocumentIds::Side& side = blockIdx.z == 0 ? a.q : a.kv;
  const DocumentIds::Side& other = blockIdx.z == 0 ? a.kv : a.q;
  const std::int64_t b = blockIdx.y;
  const int token = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (token >= side.tokens) return;
  const std::int32_t* numbers = other.numbers + b * other.tokens;
  const std::int32_t number = side.numbers[b * side.tokens + token];
  IndexSpan span{0, 0};
  if (number >= 0) {
    span = {first_not_below(numbers, other.tokens, number),
            first_not_below(numbers, other.tokens, number + 1)};
  }
  side.spans[b * side.tokens + token] = span;
}

}  // namespace

int change_rules(PositionRule* rules, const PositionRule* from, std::int64_t from_stride,
                 const RuleParts& parts, void* stream) {
  if (parts.count == 0) return cudaSuccess;
  return launch(change_rule, {blocks_for(parts.count, kThreads), kThreads}, stream, rules, from,
                from_stride, parts);
}

int add_slopes(double* slopes, const double* from, const float* more, std::int64_t stride,
               std::int64_t count, void* stream) {
  if (count == 0) return cudaSuccess;
  return launch(add_slope, {blocks_for(count, kThreads), kThreads}, stream, slopes, from, more,
                stride, count);
}

int number_documents(const DocumentIds& a, void* stream) {
  if (a.sequences == 0 || a.q.tokens == 0 || a.kv.tokens == 0) return cudaSuccess;
  const auto sequences = static_cast<unsigned>(a.sequences);
  const int most = a.q.tokens > a.kv.tokens ? a.q.tokens : a.kv.tokens;
  const int warps = blocks_of(a.q.tokens) + tiles_of(a.kv.tokens);
  const dim3 of_64(blocks_for(most, kDocumentQueries), sequences, 2);
  const dim3 of_tokens(blocks_for(most, kThreads), sequences, 2);
  int error = launch(number_tokens, {of_64, kDocumentQueries}, stream, a);
  if (error == cudaSuccess) {
    error = launch(find_reaches, {dim3(blocks_for(warps, kWarps), sequences), kThreads}, stream, a);
  }
  if (error == cudaSuccess) error = launch(order_tiles, {sequences, kLanes}, stream, a);
  if (error == cudaSuccess && a.q.spans != nullptr) {
    error = launch(find_spans, {of_tokens, kThreads}, stream, a);
  }
  return error;
}

}  // namespace cephalo::kernels::cuda
