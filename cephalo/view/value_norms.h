#pragma once

// Inside the library only.
#include <vector>

#include "cephalo/core/tensor.h"

namespace cephalo {

// v: [num_kv_heads, tokens, v_dim], out_weight: [d_out, num_heads · v_dim]
// -> [heads, tokens], float64: ‖v_j W_out^h‖₂ of those heads
Tensor value_norms(const TensorView& v, const TensorView& out_weight,
                   const std::vector<dim_t>& heads);

}  // namespace cephalo
