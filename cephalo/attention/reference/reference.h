#pragma once

#include <optional>

#include "cephalo/attention/engine/problem.h"

namespace cephalo {

// Sees every step of a computation as it happens; the views are valid during the call only.
class StepSink {
 public:
  virtual ~StepSink() = default;
  virtual void step(const char* key, const TensorView& value) = 0;
};

// The reference engine: the oracle that every other engine is tested against, and the tracer.
// Results have rank 4. With a sink the steps are shown under the keys of trace.h; without one
// nothing is copied for it.
AttendResult attend_reference(const AttendProblem& problem, StepSink* sink = nullptr);

}  // namespace cephalo
