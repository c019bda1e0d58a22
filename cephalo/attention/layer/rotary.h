#pragma once

#include <vector>

#include "cephalo/core/tensor.h"

#pragma GCC visibility push(default)
namespace cephalo {

// Rotary positions: pair k of a head is turned by the angle position · base^(−2k / head_dim), so
// that q · k depends on the distance of the two tokens.
struct Rotary {
  bool interleaved = false;  // pairs (2k, 2k + 1) instead of (k, k + head_dim / 2)
  double base = 10000.0;
};

// Turns heads: [batch, tokens, heads, head_dim] in place; token t of sequence b is at
// first[b] + t.
void rotate(const MutableTensorView& heads, const Rotary& rotary, const std::vector<dim_t>& first);

}  // namespace cephalo
#pragma GCC visibility pop
