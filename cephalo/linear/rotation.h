#pragma once

#include "cephalo/core/tensor.h"

namespace cephalo {

// Rotary positions as a product's epilogue has them: heads inside its rows are turned by the angles
// of their tokens' positions. A value without memory of its own.
struct Rotation {
  struct Part {
    MutableTensorView heads;  // [batch, heads, tokens, head_dim], float32 or float64
    TensorView shift;         // [batch], int64: token t of sequence b stands at t + shift[b]
  };
  static constexpr int kMostParts = 2;  // q and k

  double base = 0.0;         // pair k is turned by position · base^(−k / half)
  double sign = 1.0;         // −1: back
  dim_t half = 0;            // head_dim / 2
  bool interleaved = false;  // pairs (2k, 2k + 1) instead of (k, k + half)
  TensorView angles;  // [positions, half, 2], float64, dense: cos and sin; of shape [0] where
                      // positions are too scattered for a table
  dim_t first = 0;    // the position of its first row
  Part parts[kMostParts];
  int count = 0;  // of parts

  dim_t rows() const { return count > 0 ? parts[0].heads.dim(0) * parts[0].heads.dim(2) : 0; }
};

// cos and sin of all pairs at one position: what `angles` holds. to: [half, 2]
void fill_angles(const Rotation& rotation, dim_t position, double* to);

// On the host: rows b · tokens + t in [begin, end), of every part.
void turn_rows(const Rotation& rotation, dim_t begin, dim_t end);

}  // namespace cephalo
