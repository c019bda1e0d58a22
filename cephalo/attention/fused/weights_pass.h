#pragma once

#include "cephalo/attention/engine/problem.h"

namespace cephalo {

// All weights of a problem before dropout: [batch, num_heads, q_tokens, kv_tokens].
Tensor all_weights(const AttendProblem& problem, const TensorView& lse);

}  // namespace cephalo
