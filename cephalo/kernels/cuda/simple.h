#pragma once

#include "cephalo/kernels/cuda/problem.h"

// Attention as the definition has it, a warp to a row: every type, width, stride and mask, on any
// GPU from sm_80 on. Sums are made in float64 for float64, else in float32. The order of every sum
// follows from sizes alone.
//
// All functions launch into a stream and return cudaError_t's number.
namespace cephalo::kernels::cuda {

int attend_simple(const AttendArgs& args, void* stream);

// Rows that a faster kernel left to this one, since they came out not finite: numbers of
// [batch, num_heads, q_tokens], or of keys [batch, num_kv_heads, kv_tokens], in the order in which
// they were found. Both lie in device memory.
struct RowList {
  const unsigned* count;
  const unsigned* rows;
};
// cleared: kCounters numbers that become 0 as well, since the next call will count there; null:
// none.
constexpr int kCounters = 4;
int attend_listed_rows(const AttendArgs& args, const RowList& queries, unsigned* cleared,
                       void* stream);

struct BackwardArgs {
  AttendArgs forward;   // context and lse: the forward's results
  Rows dcontext, dlse;  // dlse.data null: lse was not used
  Rows dq, dk, dv;
  bool has_all_keys;  // the weights of a row add up to 1
  void* row_numbers;  // scratch
};
// Bytes of row_numbers.
std::int64_t row_numbers_bytes(const Sizes& sizes, DType q_dtype);
int attend_backward_simple(const BackwardArgs& args, void* stream);

// row_numbers alone, for a faster kernel, and what that reads: of each query the lse in base 2
// (+inf where it has looked at nothing, so that weights are 0) and Σ weights · dweights − dlse.
// Heads are padded to whole blocks, multiples of 16 rows; there are less than 2^31 rows. float32
// sums.
// With share2: what exp is taken relative to instead of lse2, and the base-2 logarithm of what the
// exponential is multiplied by: an lse of -1e30 has no room for both. Nearer than kFarTop that is
// 0.
constexpr float kFarLse = 1024.0F, kFarTop = 900.0F;
struct BlockRows {
  float* lse2;
  float* share2;  // null: not wanted
  float* delta;   // all [batch, num_heads, tokens]
  std::int64_t tokens;
};
int prepare_backward(const BackwardArgs& args, const BlockRows& blocks, void* stream);
// The gradients of rows that it left, after it; cleared: as in attend_listed_rows.
int listed_gradients(const BackwardArgs& args, const RowList& queries, const RowList& keys,
                     unsigned* cleared, void* stream);

// dbias, after attend_backward_simple or prepare_backward in the same stream.
// dbias: [batch | 1, num_heads | 1, q_tokens | 1, kv_tokens | 1]
struct BiasGradient {
  Rows dbias;
  std::int64_t shape[4];
};
int bias_gradient_simple(const BackwardArgs& args, const BiasGradient& gradient, void* stream);

}  // namespace cephalo::kernels::cuda
