#pragma once

#include <vector>

#include "cephalo/attention/attend_backward.h"

#pragma GCC visibility push(default)
namespace cephalo {

// A direction in which the inputs of attend move: so much of each for one unit of the way. What is
// empty stands still.
struct AttendDirection {
  TensorView q = {};  // the shapes of q, k and v
  TensorView k = {};
  TensorView v = {};
  std::vector<TensorView> bias = {};  // one for each bias of the mask, in its shape; or none
};

// How the results of attend move along a direction.
struct AttendTangents {
  Tensor tcontext;  // [batch, num_heads, q_tokens, v_dim]
  Tensor tlse;      // [batch, num_heads, q_tokens]
};

// Forward mode. Of the pass only context and lse are looked at; the rest, types too, is as
// attend_backward has it, and bias directions are as dbias is. A query that may look at nothing
// does not move: 0. What is hidden reaches nothing, NaN included. A rectangle of a larger problem
// must have all of its keys.
AttendTangents attend_tangent(const AttendPass& pass, const TensorView& q, const TensorView& k,
                              const TensorView& v, const AttendDirection& along,
                              const Mask& mask = {}, const AttendOptions& options = {});

// Second derivatives, applied to a direction u. With g = (dq, dk, dv, dbias), attend_backward's
// result, h are two things, which are equal because second derivatives are symmetric: how g moves
// along u while dcontext and dlse stay (forward over reverse), and the gradient of <u, g> for q, k,
// v and each bias (double backward).
struct AttendSecond {
  Tensor hq;
  Tensor hk;
  Tensor hv;
  std::vector<Tensor> hbias;  // as dbias: empty unless asked for
  // The gradient of <u, g> for dcontext and dlse: attend_tangent's results along u.
  Tensor hdcontext;
  Tensor hdlse;
};

// Memory is linear in tokens, as attend_backward's. Bits depend on the instruction set, sizes and
// mask alone. There is no third derivative.
AttendSecond attend_second(const AttendPass& pass, const TensorView& q, const TensorView& k,
                           const TensorView& v, const AttendDirection& along, const Mask& mask = {},
                           const AttendOptions& options = {}, bool with_hbias = false);

// Memory of the caller's for the results, any strides, q's element type (float32 for sums and
// biases of 16 bits); what was there before is overwritten.
struct AttendTangentViews {
  MutableTensorView tcontext;
  MutableTensorView tlse;
};
void attend_tangent_into(const AttendTangentViews& tangents, const AttendPass& pass,
                         const TensorView& q, const TensorView& k, const TensorView& v,
                         const AttendDirection& along, const Mask& mask = {},
                         const AttendOptions& options = {});

// The same for attend_second.
struct AttendSecondViews {
  MutableTensorView hq;
  MutableTensorView hk;
  MutableTensorView hv;
  MutableTensorView hdcontext;
  MutableTensorView hdlse;
  std::vector<MutableTensorView> hbias = {};  // empty: not wanted
};
void attend_second_into(const AttendSecondViews& second, const AttendPass& pass,
                        const TensorView& q, const TensorView& k, const TensorView& v,
                        const AttendDirection& along, const Mask& mask = {},
                        const AttendOptions& options = {});

}  // namespace cephalo
#pragma GCC visibility pop
