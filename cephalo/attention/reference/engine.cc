#include "cephalo/attention/reference/engine.h"

#include "cephalo/attention/reference/reference.h"
#include "cephalo/attention/reference/reference_backward.h"
#include "cephalo/attention/reference/reference_second.h"
#include "cephalo/attention/reference/weights.h"

namespace cephalo {
namespace {

const char* refuses(const AttendProblem& /*problem*/, Job /*job*/) {
  return nullptr;
}

void attend(const AttendProblem& problem, const AttendOutput& output) {
  AttendProblem wanted = problem;
  wanted.options.return_lse = output.lse.numel() > 0;
  const AttendResult result = attend_reference(wanted);
  output.context.copy_from(result.context);
  if (wanted.options.return_lse) output.lse.copy_from(result.lse);
}

AttendResult attend_whole(const AttendProblem& problem) {
  return attend_reference(problem);
}

Tensor scores(const AttendProblem& problem) {
  AttendProblem scores_only = problem;
  scores_only.options.return_weights = false;
  scores_only.options.return_lse = false;
  scores_only.options.dropout = 0.0;
  return attend_reference(scores_only).scores;
}

// The matrix of all pairs.
std::size_t scratch(const AttendProblem& problem, Job /*job*/) {
  const dim_t pairs = problem.q.dim(0) * problem.q.dim(1) * problem.q.dim(2) * problem.k.dim(2);
  return static_cast<std::size_t>(pairs) * item_size(compute_type(problem.q.dtype()));
}

}  // namespace

const EngineEntry reference_engine{
    .engine = Engine::reference,
    .name = "reference",
    .refuses = refuses,
    .attend = attend,
    .attend_backward = attend_backward_reference,
    .weights = weights_reference,
    .pooled_weights = pooled_weights_reference,
    .row_sums = row_sums_reference,
    .scores = scores,
    .attend_whole = attend_whole,
    .scratch = scratch,
    .textbook_layer = true,
    .attend_tangent = attend_tangent_reference,
    .attend_second = attend_second_reference,
};

}  // namespace cephalo
