#pragma once

#include <optional>

#include "cephalo/attention/attend.h"
#include "cephalo/core/bound_mask.h"

namespace cephalo {

// Sees every step of a computation as it happens; the views are valid during the call only.
class StepSink {
 public:
  virtual ~StepSink() = default;
  virtual void step(const char* key, const TensorView& value) = 0;
};

// Arguments of attend after all checks, rank 4. Borrows the tensors and the mask.
struct AttendProblem {
  TensorView q;  // [batch, num_heads, q_tokens, head_dim]
  TensorView k;  // [batch, num_kv_heads, kv_tokens, head_dim]
  TensorView v;  // [batch, num_kv_heads, kv_tokens, v_dim]
  BoundMask mask;
  double scale;
  AttendOptions options;
};

AttendProblem make_problem(const TensorView& q, const TensorView& k, const TensorView& v,
                           const Mask& mask, const AttendOptions& options, const char* function);

// The reference engine: the oracle that every other engine is tested against, and the tracer.
// Results have rank 4. With a sink the steps are shown under the keys of trace.h; without one
// nothing is copied for it.
AttendResult attend_reference(const AttendProblem& problem, StepSink* sink = nullptr);

}  // namespace cephalo
