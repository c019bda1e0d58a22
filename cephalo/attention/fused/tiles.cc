#include "cephalo/attention/fused/tiles.h"

#include <algorithm>
#include <cmath>
#include <numbers>

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
  const void* rows[64];
  const Strides& s = problem.q.strides();
  const auto size = static_cast<dim_t>(item_size(problem.q.dtype()));
  const auto* first = static_cast<const std::byte*>(problem.q.data()) +
                      (place.b * s[0] + place.h * s[1] + place.i * s[2]) * size;
  const dim_t count = place.i_end - place.i;
  for (dim_t x = 0; x < count; ++x) rows[x] = first + x * s[2] * size;
  kernels.pack_lanes({rows, count, problem.q.dim(3), s[3], problem.q.dtype()},
                     static_cast<T>(problem.scale * std::numbers::log2e), width, to);
}

template void pack_queries(const AttendProblem&, const kernels::AttendKernels<float, float>&,
                           const QueryPlace&, dim_t, float*);
template void pack_queries(const AttendProblem&, const kernels::AttendKernels<double, double>&,
                           const QueryPlace&, dim_t, double*);

}  // namespace cephalo
