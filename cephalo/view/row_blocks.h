#pragma once

// Inside the library only.
#include <algorithm>
#include <vector>

#include "cephalo/view/recording.h"

namespace cephalo {

// Weights of all rows that see more than one key, some rows at a time: visit(weights, rows),
// weights: [heads, rows, tokens], float64 whatever the model computes in.
template <typename Visit>
void for_row_blocks(const Recording& recording, dim_t layer, const std::vector<dim_t>& heads,
                    const Visit& visit) {
  constexpr dim_t kBlockRows = 128;  // of weights that are there at a time
  for (dim_t begin = 1; begin < recording.tokens(); begin += kBlockRows) {
    WeightsSelection selection{.heads = heads};
    const dim_t end = std::min(begin + kBlockRows, recording.tokens());
    for (dim_t i = begin; i < end; ++i) selection.rows.push_back(i);
    visit(Tensor::copy(recording.weights(layer, selection), DType::f64), selection.rows);
  }
}

}  // namespace cephalo
