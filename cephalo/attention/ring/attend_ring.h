#pragma once

#include "cephalo/attention/attend.h"
#include "cephalo/attention/attend_backward.h"
#include "cephalo/world/world.h"

#pragma GCC visibility push(default)
namespace cephalo {

// The tokens of a sequence spread over processes: as 2 · size pieces of neighbours, of which
// process r has piece r and piece 2 · size − 1 − r. Under a causal mask a late query sees many keys
// and an early one few, so all have as much to do.
struct RingShare {
  Share early, late;
  dim_t tokens() const { return early.count() + late.count(); }
};
RingShare ring_share(dim_t tokens, int rank, int size);

// attend over the tokens of all processes, each of which brings its own rows along.
//
// tokens: of the whole sequence
// q: [batch, num_heads, mine, head_dim]; k, v: [batch, num_kv_heads, mine, head_dim or v_dim]:
// those of ring_share, the early piece first -> context and lse of these rows.
//
// In the mask lengths, prefixes, documents' ids and slopes are the whole's, the same on every
// process; keep, drop and bias have this process's query rows and all keys. Dropout drops the pairs
// that it would drop in one process. Keys and values of other processes arrive while the ones at
// hand are attended to: each holds its own, those at hand and those on their way. Partial
// results join in float32 (float64 for float64), first a process's own keys, then those of the
// processes before it: an order that ranks alone decide. Where pieces are long, a process that is
// done attends for others until all are; who attends to what changes no bits.
AttendResult attend_ring(World& world, dim_t tokens, const TensorView& q, const TensorView& k,
                         const TensorView& v, const Mask& mask = {},
                         const AttendOptions& options = {});

// Gradients of this process's rows; `pass` has its rows, too. Gradients of keys go round from
// process to process, in float32 (float64 for float64), and come home when all have added their
// share. dbias has the
// shape of this process's bias; where that is one row for all queries (or no process has two), it
// is summed over processes, rank after rank.
AttendGradients attend_ring_backward(World& world, dim_t tokens, const AttendPass& pass,
                                     const TensorView& q, const TensorView& k, const TensorView& v,
                                     const Mask& mask = {}, const AttendOptions& options = {},
                                     bool with_dbias = false);

}  // namespace cephalo
#pragma GCC visibility pop
