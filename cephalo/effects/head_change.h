#pragma once

// Inside the library only.
#include <span>

#include "cephalo/effects/change.h"

namespace cephalo {

// One head of one run, once its layer has attended. Rows stand at [first, first + rows), keys at
// [0, first + rows). Any strides between rows.
struct HeadRun {
  TensorView q;               // [rows, head_dim]
  TensorView k, v;            // [keys, head_dim], of its kv head
  TensorView whole;           // [tokens, head_dim]: context of all positions, for their mean
  MutableTensorView context;  // [rows, head_dim], changed in place
  dim_t first = 0;
};

// What a change may take from elsewhere.
struct HeadGiven {
  TensorView patch = {};      // [rows, head_dim]: the context in another run
  TensorView reference = {};  // [head_dim], float64
};

// All kinds but those of edges.
void change_head(const Change& change, const HeadRun& run, const HeadGiven& given);

// Edges of one query, all at once: its row anew, without the hidden keys, and without what the cut
// ones bring. In float64; nothing where the query is not among the rows.
void change_edges(std::span<const Change> edges, const HeadRun& run);

}  // namespace cephalo
