#pragma once

#include <vector>

#include "cephalo/attention/attend.h"

#pragma GCC visibility push(default)
namespace cephalo {

// What a forward pass left behind, and the gradient that comes back to it.
struct AttendPass {
  TensorView context;    // attend's result: [batch, num_heads, q_tokens, v_dim]
  TensorView lse;        // its lse: [batch, num_heads, q_tokens]
  TensorView dcontext;   // the shape of context
  TensorView dlse = {};  // the shape of lse; empty: lse was not used
};

// Gradients in the shapes of q, k and v. dbias: one for each bias of the mask, in the mask's order
// and in the bias's own shape, sums over the axes along which it was broadcast.
struct AttendGradients {
  Tensor dq;
  Tensor dk;
  Tensor dv;
  std::vector<Tensor> dbias;  // empty unless asked for
};

// q, k, v, mask and options: as the forward pass had them, of one type. With 16 bits lse, dlse and
// dbias are float32, as arithmetic is; dq, dk and dv are rounded once. Weights are computed again
// from q, k and lse, tile by tile, in memory linear in tokens. Dropout of the counter stream is
// drawn again; the torch streams need a generator in the state that the forward pass found.
//
// A query that may look at nothing has gradient 0, and what is hidden has none: NaN in a hidden row
// of q, k, v or dcontext reaches nothing. Bits depend on the instruction set, sizes and mask alone.
AttendGradients attend_backward(const AttendPass& pass, const TensorView& q, const TensorView& k,
                                const TensorView& v, const Mask& mask = {},
                                const AttendOptions& options = {}, bool with_dbias = false);

// The caller's memory for the gradients, any strides, q's element type; what was there before is
// overwritten. An empty dbias: not wanted.
struct AttendGradientViews {
  MutableTensorView dq;
  MutableTensorView dk;
  MutableTensorView dv;
  std::vector<MutableTensorView> dbias = {};
};
void attend_backward_into(const AttendGradientViews& gradients, const AttendPass& pass,
                          const TensorView& q, const TensorView& k, const TensorView& v,
                          const Mask& mask = {}, const AttendOptions& options = {});

}  // namespace cephalo
#pragma GCC visibility pop
