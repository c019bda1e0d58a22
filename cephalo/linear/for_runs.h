#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "cephalo/core/parallel.h"
#include "cephalo/core/tensor.h"

namespace cephalo {

// Neighbouring elements of N tensors of one shape: `count` of them from row-major index `first` on.
// Those of tensor n begin at `offset[n]` from its first element, `stride[n]` apart.
template <std::size_t N>
struct Run {
  dim_t first;
  dim_t count;
  std::array<dim_t, N> offset;
  std::array<dim_t, N> stride;
};

// Where element `index` of t, in row-major order, lies.
inline dim_t offset_in(const TensorView& t, dim_t index) {
  dim_t offset = 0;
  for (int axis = t.rank() - 1; axis >= 0; --axis) {
    offset += index % t.dim(axis) * t.strides()[axis];
    index /= t.dim(axis);
  }
  return offset;
}

// Enough work for a thread, and few enough bytes for its cache.
inline constexpr dim_t kPieceElements = 8192;
inline dim_t pieces_of(const TensorView& t) {
  return (t.numel() + kPieceElements - 1) / kPieceElements;
}

// Calls body(piece, run) for the runs of every piece, ascending within a piece. Pieces depend on
// the shape alone, so what is added up in one has the same bits for any strides and threads.
template <std::size_t N, typename Body>
void for_runs(const std::array<TensorView, N>& tensors, double flops_per_element, Body&& body) {
  const TensorView& t = tensors[0];
  const dim_t total = t.numel();
  const bool dense = std::all_of(tensors.begin(), tensors.end(),
                                 [](const TensorView& each) { return each.is_contiguous(); });
  const dim_t width = dense || t.rank() == 0 ? total : t.dim(-1);
  const Region region{pieces_of(t), flops_per_element * static_cast<double>(total)};
  parallel_for(region, [&](dim_t piece, std::byte*) {
    const dim_t end = std::min(total, (piece + 1) * kPieceElements);
    for (dim_t at = piece * kPieceElements; at < end;) {
      Run<N> run{at, std::min(end - at, width - at % width), {}, {}};
      for (std::size_t n = 0; n < N; ++n) {
        run.offset[n] = dense ? at : offset_in(tensors[n], at);
        run.stride[n] = dense || t.rank() == 0 ? 1 : tensors[n].strides()[-1];
      }
      body(piece, run);
      at += run.count;
    }
  });
}

}  // namespace cephalo
