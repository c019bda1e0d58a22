#pragma once

#include <vector>

#include "cephalo/attention/layer/rotary.h"
#include "cephalo/mask/bound_mask.h"

namespace cephalo {

// Turns the heads of rows that a product has just finished, or turns their gradients back. The
// angles of a position are computed once for all heads, and once for all sequences where those
// stand at the same positions.
class RowRotation {
 public:
  enum class Direction { forward, back };
  RowRotation(const Rotary& rotary, dim_t head_dim, Direction direction = Direction::forward)
      : rotary_(rotary), half_(head_dim / 2), sign_(direction == Direction::forward ? 1.0 : -1.0) {}

  struct Part {
    MutableTensorView heads;   // [batch, heads, tokens, head_dim], float32 or float64
    std::vector<dim_t> shift;  // position of token t of sequence b is t + shift[b]
  };
  void add(Part part);

  // Angles for the positions in use, unless they are too scattered for a table.
  void build_table();

  // Rows b · tokens + t in [begin, end), of every part.
  void turn_rows(dim_t begin, dim_t end) const;
  void turn_all_rows() const;  // the same for all of them, on several threads

 private:
  void fill_angles(dim_t position, double* to) const;
  template <typename T>
  void turn(const Part& part, dim_t b, dim_t t, const double* angles) const;

  Rotary rotary_;
  dim_t half_;
  double sign_;  // of all angles
  std::vector<Part> parts_;
  std::vector<double> table_;
  dim_t first_ = 0;
  dim_t count_ = 0;
};

// Where the first query and the first key of each sequence stand: what `shift` is for q and for k.
std::vector<dim_t> query_shifts(const BoundMask& mask);
std::vector<dim_t> key_shifts(const BoundMask& mask);

}  // namespace cephalo
