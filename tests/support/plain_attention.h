#pragma once

#include "cephalo/attention/attend.h"
#include "tests/support/mask_spec.h"

namespace cephalo::testing {

// Attention written as NumPy users write it, in one precision throughout: a wider T is the
// truth (long double for float64), the same T the error that a plain implementation makes. It
// shares no code with the engines.
struct PlainResult {
  Tensor context;  // T; [batch, num_heads, q_tokens, v_dim]
  Tensor weights;
  Tensor lse;
};

template <typename T>
PlainResult plain_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                            const MaskTable& mask, double scale, double softcap = 0.0);

}  // namespace cephalo::testing
