#pragma once

#include "cephalo/attention/engine/problem.h"

namespace cephalo {

// Which weights dropout keeps: uint8 [batch, num_heads, q_tokens, kv_tokens], 1 where kept. The
// torch streams advance the generator by one draw for every pair, hidden ones too.
Tensor draw_kept(const AttendProblem& problem);

// pairs, kept: [batch, num_heads, q_tokens, kv_tokens], dense
// Inverted dropout: what is dropped becomes 0, what is kept grows by 1 / (1 − p).
template <typename T>
void apply_dropout(Tensor& pairs, const Tensor& kept, double p);

}  // namespace cephalo
