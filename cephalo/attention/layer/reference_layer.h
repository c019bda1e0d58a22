#pragma once

#include "cephalo/attention/layer/layer_call.h"
#include "cephalo/attention/layer/layer_pass.h"
#include "cephalo/attention/reference/reference.h"

namespace cephalo {

// The six steps of the textbook, each one stored: the twin of run_fused_layer. `problem` is the
// call's, ahead. With a sink every step is shown to it under the keys of trace.h; `pass`, when
// given, gets q, k, v, context and lse.
// -> [batch, tokens, d_out], x's element type (without an output projection context_width wide)
Tensor run_reference_layer(const Parameters& parameters, const LayerCall& call,
                           AttendProblem problem, StepSink* sink, LayerPass* pass);

}  // namespace cephalo
