#pragma once

#include "cephalo/view/head_metrics.h"

#pragma GCC visibility push(default)
namespace cephalo {

// Which numbers the map of a head shows. Plain: its weights.
struct MapOptions {
  bool no_first = false;        // without the first token: rows of the others add up to 1
  bool value_weighted = false;  // weight · ‖v_j W_out^h‖₂: how much it moves; rows add up to 1
  bool plain() const { return !no_first && !value_weighted; }
};

// Why one would look at such a map, in one sentence; "" for a plain one.
const char* reason(const MapOptions& maps);

// -> [heads, rows, tokens], float64: of the selection, or all. What a map leaves out is NaN, which
// is hidden and not 0.
Tensor map_weights(const Recording& recording, dim_t layer, const WeightsSelection& selection,
                   const MapOptions& maps);

// A small map of a head, at most cells × cells: the largest of what each cell covers, as
// Recording::pooled gives it. NaN where all of that is left out.
Tensor weight_map(const Recording& recording, const HeadPlace& place, dim_t cells,
                  const MapOptions& maps);

}  // namespace cephalo
#pragma GCC visibility pop
