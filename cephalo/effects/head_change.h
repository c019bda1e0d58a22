#pragma once

// Inside the library only.
#include <vector>

#include "cephalo/effects/change.h"

namespace cephalo {

// One head of one run, once its layer has attended. Rows stand at [first, first + rows), keys at
// [0, first + rows). Any strides between rows.
struct HeadRun {
  TensorView q;       // [rows, head_dim]
  TensorView k, v;    // [keys, head_dim], of its kv head
  TensorView before;  // [rows, head_dim]: its context
  TensorView whole;   // [tokens, head_dim]: that of all positions, for their mean
  dim_t first = 0;
};

// What a change may take from elsewhere.
struct HeadGiven {
  TensorView patch = {};      // [rows, head_dim]: the context in another run
  TensorView reference = {};  // [head_dim], float64
};

// What becomes of one head's context in one layer: one change, or edges of one query.
struct HeadChange {
  dim_t head = 0;
  std::vector<Change> changes;
};
std::vector<HeadChange> head_changes(const Changes& changes, dim_t layer);

// By how much it changes: [rows, head_dim]. Edges: the query's row anew in float64, without the
// hidden keys, and without what the cut ones bring; nothing where it is not among the rows.
Tensor context_change(const HeadChange& change, const HeadRun& run, const HeadGiven& given);

}  // namespace cephalo
