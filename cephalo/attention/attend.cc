#include "cephalo/attention/attend.h"

#include <cmath>
#include <utility>

#include "cephalo/attention/engine/engine.h"
#include "cephalo/attention/fused/fused.h"
#include "cephalo/attention/fused/weights_pass.h"
#include "cephalo/attention/kv_cache.h"
#include "cephalo/attention/reference/reference.h"
#include "cephalo/core/fail.h"
#include "cephalo/core/parallel.h"

namespace cephalo {
namespace {

void check_output(const AttendOutput& output, const TensorView& q, const TensorView& v) {
  Shape rows;
  for (int axis = 0; axis + 1 < q.rank(); ++axis) rows.push_back(q.dim(axis));
  Shape whole = rows;
  whole.push_back(v.dim(-1));
  require(output.context.shape() == whole, "attend_into: context is {}, the result {}",
          output.context.shape(), whole);
  require_type(is_floating(output.context.dtype()), "attend_into: context cannot be {}",
               name(output.context.dtype()));
  if (output.lse.numel() == 0) return;
  const DType steps = q.dtype() == DType::f64 ? DType::f64 : DType::f32;
  require(output.lse.shape() == rows, "attend_into: lse is {}, the result {}", output.lse.shape(),
          rows);
  require_type(output.lse.dtype() == steps, "attend_into: lse is {}, {} is needed",
               name(output.lse.dtype()), name(steps));
}

void run_into(const AttendOutput& output, const AttendProblem& problem) {
  if (choose_engine(problem.options, "attend_into") == Engine::fused) {
    attend_fused(problem, output);
    return;
  }
  AttendProblem wanted = problem;
  wanted.options.return_lse = output.lse.numel() > 0;
  const AttendResult result = attend_reference(wanted);
  output.context.copy_from(result.context);
  if (wanted.options.return_lse) output.lse.copy_from(result.lse);
}

// Scores at the tap, by the reference engine beside the fused context.
Tensor tapped_scores(const AttendProblem& problem) {
  AttendProblem scores_only = problem;
  scores_only.options.return_weights = false;
  scores_only.options.return_lse = false;
  scores_only.options.dropout = 0.0;
  return attend_reference(scores_only).scores;
}

AttendResult run_fused(const AttendProblem& problem) {
  AttendResult result;
  const Shape rows{problem.q.dim(0), problem.q.dim(1), problem.q.dim(2)};
  const DType steps = problem.q.dtype() == DType::f64 ? DType::f64 : DType::f32;
  result.context = Tensor::empty({rows[0], rows[1], rows[2], problem.v.dim(3)}, problem.q.dtype());
  if (problem.options.return_lse || problem.options.return_weights) {
    result.lse = Tensor::empty(rows, steps);
  }
  attend_fused(problem, {result.context, result.lse});
  if (problem.options.return_weights) result.weights = all_weights(problem, result.lse);
  if (problem.options.return_scores != ScoresTap::none) result.scores = tapped_scores(problem);
  if (!problem.options.return_lse) result.lse = Tensor();
  return result;
}

AttendResult run(const AttendProblem& problem) {
  const UseThreads limit(problem.options.threads);
  return choose_engine(problem.options, "attend") == Engine::fused ? run_fused(problem)
                                                                   : attend_reference(problem);
}

}  // namespace

AttendResult attend(const TensorView& q, const TensorView& k, const TensorView& v, const Mask& mask,
                    const AttendOptions& options) {
  AttendResult result = run(make_problem(q, k, v, mask, options, "attend"));
  const int added = 4 - q.rank();
  return {without_leading_ones(std::move(result.context), added),
          without_leading_ones(std::move(result.lse), added),
          without_leading_ones(std::move(result.weights), added),
          without_leading_ones(std::move(result.scores), added)};
}

AttendResult attend(const TensorView& q, const KVCache& cache, const Mask& mask,
                    const AttendOptions& options) {
  return run(make_problem(q, cache, mask, options, "attend"));
}

void attend_into(const AttendOutput& output, const TensorView& q, const TensorView& k,
                 const TensorView& v, const Mask& mask, const AttendOptions& options) {
  const AttendProblem problem = make_problem(q, k, v, mask, options, "attend");
  check_output(output, q, v);
  const UseThreads limit(options.threads);
  run_into({with_leading_ones(output.context, 4),
            output.lse.numel() > 0 ? with_leading_ones(output.lse, 3) : output.lse},
           problem);
}

void attend_into(const AttendOutput& output, const TensorView& q, const KVCache& cache,
                 const Mask& mask, const AttendOptions& options) {
  const AttendProblem problem = make_problem(q, cache, mask, options, "attend");
  check_output(output, q, problem.v);
  const UseThreads limit(options.threads);
  run_into(output, problem);
}

}  // namespace cephalo
