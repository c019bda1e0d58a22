#include "cephalo/attention/fused/tiles.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "cephalo/core/rows.h"

namespace cephalo {

std::vector<QueryRange> cut_queries(dim_t begin, dim_t queries, dim_t lanes) {
  dim_t vectors = (queries + lanes - 1) / lanes;
  std::vector<QueryRange> tiles;
  tiles.reserve(static_cast<std::size_t>(vectors / kernels::kMaxColumns + 2));
  while (vectors > 0) {
    const int columns =
        vectors == 4 ? 2 : static_cast<int>(std::min<dim_t>(kernels::kMaxColumns, vectors));
    tiles.push_back({begin, columns});
    begin += columns * lanes;
    vectors -= columns;
  }
  return tiles;
}

bool is_far(double lse) {
  return std::isfinite(lse) && std::abs(lse) > kernels::kFarScore;
}

bool has_bias(const AttendProblem& problem) {
  const auto& parts = problem.mask.parts();
  return std::any_of(parts.begin(), parts.end(), [](const BoundMask::Part& part) {
    return part.role == MaskTensor::Role::bias;
  });
}

template <typename T>
void pack_queries(const AttendProblem& problem, const kernels::AttendKernels<T, T>& kernels,
                  const QueryPlace& place, dim_t width, T* to) {
  const TensorView& q = problem.q;
  const void* rows[64];
  const dim_t count = place.i_end - place.i;
  row_addresses(q, place.b, place.h, place.i, count, rows);
  kernels.pack_lanes({rows, count, q.dim(3), q.strides()[3], q.dtype()},
                     static_cast<T>(problem.scale * std::numbers::log2e), width, to);
}

template void pack_queries(const AttendProblem&, const kernels::AttendKernels<float, float>&,
                           const QueryPlace&, dim_t, float*);
template void pack_queries(const AttendProblem&, const kernels::AttendKernels<double, double>&,
                           const QueryPlace&, dim_t, double*);

}  // namespace cephalo
