#include "cephalo/attention/fused/engine.h"

#include "cephalo/attention/fused/decode.h"
#include "cephalo/attention/fused/fused.h"
#include "cephalo/attention/fused/fused_backward.h"
#include "cephalo/attention/fused/fused_second.h"
#include "cephalo/attention/fused/weights.h"
#include "cephalo/core/cpu.h"

namespace cephalo {
namespace {

const char* refuses(const AttendProblem& problem, Job /*job*/) {
  const AttendOptions& options = problem.options;
  if (options.dropout > 0.0 && options.dropout_stream != DropoutStream::counter) {
    return "dropout from a torch stream draws for the whole weights matrix in its memory order; "
           "the counter stream can be drawn tile by tile";
  }
  return nullptr;
}

std::size_t scratch(const AttendProblem& problem, Job /*job*/) {
  return fused_scratch_bytes(problem);
}

// Rows of q are read before they are written, but for few queries against many keys, which are
// shared out by keys.
bool writes_over_q(const AttendProblem& problem) {
  return problem.q.dim(2) > kMostDecodeQueries;
}

const char* runs_on(DType dtype) {
  return name(current_isa(dtype));
}

}  // namespace

const EngineEntry fused_engine{
    .engine = Engine::fused,
    .name = "fused",
    .refuses = refuses,
    .attend = attend_fused,
    .attend_backward = attend_backward_fused,
    .weights = weights_fused,
    .pooled_weights = pooled_weights_fused,
    .row_sums = row_sums_fused,
    .scratch = scratch,
    .writes_over_q = writes_over_q,
    .runs_on = runs_on,
    .attend_tangent = attend_tangent_fused,
    .attend_second = attend_second_fused,
};

}  // namespace cephalo
