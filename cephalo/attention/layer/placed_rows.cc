#include "cephalo/attention/layer/placed_rows.h"

#include "cephalo/attention/ring/ring_rows.h"
#include "cephalo/core/fail.h"
#include "cephalo/linear/ops.h"

namespace cephalo {

std::vector<PlacedRows> place_rows(const Spread& spread, const TensorView& q, const TensorView& k,
                                   const TensorView& v, const Mask& mask,
                                   const AttendOptions& options, const char* function) {
  const int size = spread.world->size();
  require(spread.tokens >= size, "{}: {} tokens are too few for {} processes", function,
          spread.tokens, size);
  const RingCall call(*spread.world, spread.tokens, q, k, v, mask, options, function);
  std::vector<PlacedRows> placed;
  for (const RingPiece& piece : ring_pieces(spread.tokens, spread.world->rank(), size)) {
    const dim_t end = piece.begin + piece.whole.count();
    const auto rows = [&](const TensorView& t) {
      return shape_alone({t.dim(0), t.dim(1), piece.whole.count(), t.dim(3)}, t.dtype());
    };
    const Mask cut = call.mask_of(piece, piece);
    const AttendProblem problem =
        make_problem(rows(q), rows(k), rows(v), cut, call.options_of(piece, piece), function);
    placed.push_back({piece.begin, end, query_shifts(problem.mask), key_shifts(problem.mask)});
  }
  return placed;
}

void turn_placed(const std::vector<PlacedRows>& placed, const Rotary& rotary, PlacedHeads which,
                 const MutableTensorView& heads, RowRotation::Direction direction) {
  for (const PlacedRows& rows : placed) {
    RowRotation rotation(rotary, heads.dim(3), direction);
    rotation.add({heads.slice(2, rows.begin, rows.end),
                  which == PlacedHeads::q ? rows.q_shift : rows.k_shift});
    rotation.build_table();
    ops::rotate(rotation.rotation());
  }
}

}  // namespace cephalo
