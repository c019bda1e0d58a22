#pragma once

#include <cstddef>

#include "cephalo/kernels/cuda/problem.h"

namespace cephalo::kernels::cuda {

// to: [shape[0], shape[1], shape[2], shape[3]], any strides and floating types; converts. Columns
// from `columns` on, which `from` lacks, become 0.
int copy_rows(const Rows& to, const Rows& from, const std::int64_t (&shape)[4],
              std::int64_t columns, void* stream);

// float32 numbers, or what converts to them, as sums of bfloat16 ones, largest first: see
// parts.cuh. from: [batch, heads, tokens, columns] to: [batch, heads, tokens, parts, width], dense;
// columns that `from` lacks become 0. width is 64 or 128, and there are less than 2^30 rows.
// clears: rows that are not finite become 0, so that a weight of 0 hides them; of such a row a NaN
// is written to the same row of marks, if there are any: [batch, heads, tokens, mark_stride]
struct SplitRows {
  std::uint16_t* to;
  Rows from;
  std::int64_t batch, heads, tokens;
  int columns, width, parts;
  bool clears;
  std::uint16_t* marks;
  std::int64_t mark_stride;
};
int split_rows(const SplitRows& args, void* stream);

// A few numbers of the host into device memory: they are read before this returns, and nobody
// waits. Many of them, and those of a graph that is being captured, as arguments of kernels. Whole
// words of 4 bytes.
int upload(void* to, const void* from, std::size_t bytes, void* stream);

// All bytes become 0: whole words of 4, from a multiple of 16 on. By a kernel: the runtime's own
// memset costs the host more where it is large, and cannot wait in a line with others.
int clear(void* memory, std::size_t bytes, void* stream);

}  // namespace cephalo::kernels::cuda
