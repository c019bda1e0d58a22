#pragma once

#include "cephalo/attention/engine/problem.h"
#include "cephalo/attention/fused/memory.h"
#include "cephalo/kernels/tables.h"

namespace cephalo {

// What is across the lanes of a tile; the other is down its rows.
enum class Lanes { queries, keys };

// Queries [i, i + count) of head h against keys [j, j + keys), in a tile `width` lanes wide.
struct TilePlace {
  dim_t b, h;
  dim_t i, count, width;
  dim_t j, keys;
};

// Turns a mask into what kernels read, one tile after another: bits in lanes, a bias in lanes.
// A tile has at most kKvTile rows. Works in memory that the caller lends, so that it can run inside
// a parallel region.
template <typename T, Lanes lanes = Lanes::queries>
class TileMaskBuilder {
 public:
  struct Scratch {
    std::uint64_t* visible;  // [rows]
    std::uint64_t* kept;     // [rows]
    T* bias;                 // [rows][width]
  };
  static Scratch divide(Arena& arena, const AttendProblem& problem,
                        const kernels::MaskKernels<T>& kernels);

  TileMaskBuilder(const AttendProblem& problem, const kernels::MaskKernels<T>& kernels,
                  const Scratch& scratch);

  // `hidden`: skip the tile; `visible`: no mask is needed; `mixed`: `mask` holds what applies,
  // until the next call.
  Tile build(const TilePlace& place, kernels::TileMask<T>* mask);

 private:
  static dim_t rows_of(const TilePlace& place) {
    return lanes == Lanes::queries ? place.keys : place.count;
  }
  static dim_t lanes_of(const TilePlace& place) {
    return lanes == Lanes::queries ? place.count : place.keys;
  }
  Tile build_bits(const TilePlace& place, kernels::TileMask<T>* mask, bool by_position,
                  bool by_document);
  void hide_by_document(const TilePlace& place);
  void ask_for_next(const TilePlace& place, const BoundMask::Part& part) const;
  void apply_tensor(const TilePlace& place, const BoundMask::Part& part, bool* bias_begun);
  void draw_kept(const TilePlace& place);

  const AttendProblem& problem_;
  const kernels::MaskKernels<T>& kernels_;
  std::uint64_t* visible_;
  std::uint64_t* kept_;
  T* bias_;
};

}  // namespace cephalo
