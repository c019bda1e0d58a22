#pragma once

#include "cephalo/core/tensor.h"
#include "cephalo/mask/bound_mask.h"

namespace cephalo {

// Rotary positions: pair k of a head is turned by the angle position · base^(−2k / head_dim), so
// that q · k depends on the distance of the two tokens.
struct Rotary {
  bool interleaved = false;  // pairs (2k, 2k + 1) instead of (k, k + head_dim / 2)
  double base = 10000.0;
};

// Turns heads: [batch, tokens, heads, head_dim] in place; token t of sequence b stands at
// position(b, t) for queries, at t for keys (`queries` null).
void rotate(const MutableTensorView& heads, const Rotary& rotary, const BoundMask* queries);

}  // namespace cephalo
