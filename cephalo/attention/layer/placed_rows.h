#pragma once

// Inside the library only.
#include <vector>

#include "cephalo/attention/engine/problem.h"
#include "cephalo/attention/layer/row_rotation.h"
#include "cephalo/attention/ring/spread.h"

namespace cephalo {

// Rows of one process that are neighbours in the whole sequence, and where they stand in it.
struct PlacedRows {
  dim_t begin, end;                     // among the process's rows
  std::vector<dim_t> q_shift, k_shift;  // of each sequence: RowRotation::Part
};

// q, k, v: rank 4, shapes of this process's rows. Whatever attending to them over the world would
// refuse is refused here.
std::vector<PlacedRows> place_rows(const Spread& spread, const TensorView& q, const TensorView& k,
                                   const TensorView& v, const Mask& mask,
                                   const AttendOptions& options, const char* function);

// Turns heads by the positions of their tokens, or their gradients back; q: queries, or else keys.
// heads: [batch, heads, mine, head_dim], in place
enum class PlacedHeads { q, k };
void turn_placed(const std::vector<PlacedRows>& placed, const Rotary& rotary, PlacedHeads which,
                 const MutableTensorView& heads,
                 RowRotation::Direction direction = RowRotation::Direction::forward);

}  // namespace cephalo
