#pragma once

#include "cephalo/attention/attend.h"
#include "cephalo/attention/attend_backward.h"
#include "cephalo/attention/ring/attend_ring.h"
#include "cephalo/world/world.h"

#pragma GCC visibility push(default)
namespace cephalo {

// What attend_ring computes, with the work spread by heads: every process receives all tokens of
// its key/value heads (share_of num_kv_heads) and of the heads that use them, attends as one
// process does, and sends each process its rows back. Five messages to every other process instead
// of one; at most num_kv_heads processes have work. Arguments and results as in
// attend_ring. Bits are those of one process for any number of them. keep, drop and bias are
// refused: a process has them for its own query rows only.
AttendResult attend_heads(World& world, dim_t tokens, const TensorView& q, const TensorView& k,
                          const TensorView& v, const Mask& mask = {},
                          const AttendOptions& options = {});
AttendGradients attend_heads_backward(World& world, dim_t tokens, const AttendPass& pass,
                                      const TensorView& q, const TensorView& k, const TensorView& v,
                                      const Mask& mask = {}, const AttendOptions& options = {});

}  // namespace cephalo
#pragma GCC visibility pop
