#pragma once

#include <cstddef>

#include "cephalo/kernels/cuda/problem.h"

namespace cephalo::kernels::cuda {

// to: [shape[0], shape[1], shape[2], shape[3]], any strides and floating types; converts. Columns
// from `columns` on, which `from` lacks, become 0.
int copy_rows(const Rows& to, const Rows& from, const std::int64_t (&shape)[4],
              std::int64_t columns, void* stream);

// A few numbers of the host into device memory, as arguments of kernels: they are read before this
// returns, in a graph that is being captured too, and nobody waits. Whole words of 4 bytes.
int upload(void* to, const void* from, std::size_t bytes, void* stream);

// All bytes become 0.
int clear(void* memory, std::size_t bytes, void* stream);

}  // namespace cephalo::kernels::cuda
