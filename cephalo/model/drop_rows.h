#pragma once

#include <cstdint>

#include <span>

#include "cephalo/core/tensor.h"

namespace cephalo {

// Rows of a pass that are neighbours in the whole as well: [row, row + count).
struct RowRun {
  dim_t row = 0;
  dim_t count = 0;
  dim_t whole_row = 0;  // what the first is called in the whole
};

// Dropout of one pass: a function of seed, place, row and column, and never of threads.
struct RowDropout {
  double probability = 0.0;  // that an element is dropped, in [0, 1)
  std::uint64_t seed = 0;
  std::span<const RowRun> runs = {};  // all rows of x; empty: they are called 0, 1, 2, …
};

// x: [rows, width], dense; a kept element grows by 1 / (1 − probability). The same call on a
// gradient is the way back. `place` tells the dropouts of one pass apart.
void drop_rows(const RowDropout& dropout, std::uint32_t place, const MutableTensorView& x);

}  // namespace cephalo
