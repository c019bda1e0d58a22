#pragma once

#include <vector>

#include "cephalo/attention/engine/problem.h"
#include "cephalo/kernels/sizes.h"
#include "cephalo/kernels/tables.h"

namespace cephalo {

// Consecutive queries that fill the lanes of one tile.
struct QueryRange {
  dim_t begin;
  int columns;
};

// `queries` from `begin` on in tiles of three vectors; what is left over as two of two vectors
// rather than three and one: narrow tiles are slower.
std::vector<QueryRange> cut_queries(dim_t begin, dim_t queries, dim_t lanes);

// Does the mask have a bias? Only then rows are far (kernels::kFarScore): those with such an lse.
bool has_bias(const AttendProblem& problem);
bool is_far(double lse);

// Queries [i, i_end) of head h into lanes, times scale · log2(e): [head_dim][width].
struct QueryPlace {
  dim_t b, h;
  dim_t i, i_end;
};
template <typename T>
void pack_queries(const AttendProblem& problem, const kernels::AttendKernels<T, T>& kernels,
                  const QueryPlace& place, dim_t width, T* to);

}  // namespace cephalo
