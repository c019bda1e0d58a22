#pragma once

#include "cephalo/core/tensor.h"

namespace cephalo {

// Steps 2, 3 and 5 of the six: nothing is computed here, only looked at in another order.

// projected: [batch, tokens, num_heads · dim] -> [batch, tokens, num_heads, dim], same memory
TensorView split_heads(const TensorView& projected, dim_t num_heads);

// split: [batch, tokens, num_heads, dim] -> [batch, num_heads, tokens, dim], same memory
TensorView heads_first(const TensorView& split);

// context: [batch, num_heads, tokens, dim] -> [batch, tokens, num_heads · dim]. The one step that
// moves memory: neighbouring heads of a token must become neighbours. One head moves nothing.
Tensor merge_heads(Tensor context);

}  // namespace cephalo
