#pragma once

#include "cephalo/attention/problem.h"
#include "cephalo/kernels/tables.h"

namespace cephalo {

// Queries [i, i + count) of head h against keys [j, j + keys), in a tile `width` lanes wide.
struct TilePlace {
  dim_t b, h;
  dim_t i, count, width;
  dim_t j, keys;
};

// Turns a mask into what kernels read, one tile after another: bits in lanes, a bias in lanes.
// Works in memory that the caller lends, so that it can run inside a parallel region.
template <typename T>
class TileMaskBuilder {
 public:
  TileMaskBuilder(const AttendProblem& problem, const kernels::AttendKernels<T>& kernels,
                  std::byte* scratch);
  static std::size_t scratch_bytes(const AttendProblem& problem,
                                   const kernels::AttendKernels<T>& kernels);

  // `hidden`: skip the tile; `visible`: no mask is needed; `mixed`: `mask` holds what applies,
  // until the next call.
  Tile build(const TilePlace& place, kernels::TileMask<T>* mask);

 private:
  void hide_by_document(const TilePlace& place);
  void apply_tensor(const TilePlace& place, const BoundMask::Part& part, bool* bias_begun);
  void draw_kept(const TilePlace& place);

  const AttendProblem& problem_;
  const kernels::AttendKernels<T>& kernels_;
  std::uint64_t* visible_;  // [keys]
  std::uint64_t* kept_;     // [keys]
  T* bias_;                 // [keys][width]
};

}  // namespace cephalo
