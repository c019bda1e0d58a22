#pragma once

#include <cstddef>
#include <span>

#include "cephalo/core/tensor.h"

namespace cephalo::ops {

struct Addition {
  std::size_t to;  // which of the terms
  std::size_t from;
};

// terms[to] += terms[from] for each addition, in their order. Elements go through all of them while
// they are in the cache, and only sums that remain are written: a term that was added to another is
// left undefined. terms: dense, one shape and type, on the host; any that no addition names
void add_tree(std::span<const MutableTensorView> terms, std::span<const Addition> additions);

}  // namespace cephalo::ops
