#pragma once

#include <vector>

#include "cephalo/attention/layer/rotary.h"
#include "cephalo/linear/rotation.h"
#include "cephalo/mask/bound_mask.h"

namespace cephalo {

// What a Rotation points at: how the heads of rows are turned that a product makes, or their
// gradients turned back. The angles of a position are computed once for all heads, and once for all
// sequences where those stand at the same positions.
class RowRotation {
 public:
  enum class Direction { forward, back };
  RowRotation(const Rotary& rotary, dim_t head_dim, Direction direction = Direction::forward);

  struct Part {
    MutableTensorView heads;   // [batch, heads, tokens, head_dim], float32 or float64
    std::vector<dim_t> shift;  // position of token t of sequence b is t + shift[b]
  };
  void add(Part part);

  // Angles for the positions in use, unless they are too scattered for a table.
  void build_table();

  // Valid until another part or table, and while this is where it is.
  Rotation rotation() const;

 private:
  Rotation plain_;  // without parts and angles
  std::vector<Part> parts_;
  Tensor table_;
};

// Where the first query and the first key of each sequence stand: what `shift` is for q and for k.
std::vector<dim_t> query_shifts(const BoundMask& mask);
std::vector<dim_t> key_shifts(const BoundMask& mask);

}  // namespace cephalo
