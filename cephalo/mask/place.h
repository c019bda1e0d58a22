#pragma once

#include "cephalo/core/shape.h"

#pragma GCC visibility push(default)
namespace cephalo {

// Where a problem is in a larger one. A shard of a batch, some heads of a layer, a block of
// queries against a block of keys: each is a rectangle of a whole that need not exist anywhere, and
// gives that part of the whole's answer. By default a problem is its own whole.
//
// What speaks of sequences, heads or tokens is the whole's: lengths, prefixes, documents' ids,
// slopes of alibi, tokens of row_sums; and so are positions, windows and the counters of dropout.
// What has a number for every pair or row is the rectangle's own: q, k, v, context, lse, weights,
// gradients, and in the mask keep, drop and bias. Indices in calls count from the rectangle's
// beginning.
//
// A rectangle that lacks keys of the whole has a softmax of its own: context and lse are those of
// the keys at hand. The whole's are lse = log Σ exp(lse_r) and context = Σ exp(lse_r − lse)
// context_r over the rectangles r of a row. Backwards and in weights, the whole's context and lse
// are given: dq is then the rectangle's share, to be added up over keys, as dk and dv are over
// queries.
struct Place {
  struct Axis {
    dim_t begin = 0;
    dim_t whole = 0;  // how long the whole is; 0: as long as the problem
    bool operator==(const Axis&) const = default;
  };
  Axis batch = {};
  Axis heads = {};  // those of q
  Axis q_tokens = {};
  Axis kv_tokens = {};
  bool operator==(const Place&) const = default;
};

}  // namespace cephalo
#pragma GCC visibility pop
