#pragma once

#include <cstdint>

#include "cephalo/core/tensor.h"

namespace cephalo {

// Dropout of one pass: a function of seed, place, row and column, and never of threads.
struct RowDropout {
  double probability = 0.0;  // that an element is dropped, in [0, 1)
  std::uint64_t seed = 0;
  dim_t first_row = 0;  // what x's first row is called
};

// x: [rows, width], dense; a kept element grows by 1 / (1 − probability). The same call on a
// gradient is the way back. `place` tells the dropouts of one pass apart.
void drop_rows(const RowDropout& dropout, std::uint32_t place, const MutableTensorView& x);

}  // namespace cephalo
