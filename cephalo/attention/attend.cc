#include "cephalo/attention/attend.h"

#include <utility>

#include "cephalo/attention/engine/engine.h"
#include "cephalo/attention/kv_cache.h"
#include "cephalo/core/allocator.h"
#include "cephalo/core/common_device.h"
#include "cephalo/core/fail.h"
#include "cephalo/core/parallel.h"

namespace cephalo {
namespace {

void check_output(const AttendOutput& output, const TensorView& q, const TensorView& v) {
  common_device("attend_into", {{"q", q}, {"context", output.context}, {"lse", output.lse}});
  Shape rows;
  for (int axis = 0; axis + 1 < q.rank(); ++axis) rows.push_back(q.dim(axis));
  Shape whole = rows;
  whole.push_back(v.dim(-1));
  require(output.context.shape() == whole, "attend_into: context is {}, the result {}",
          output.context.shape(), whole);
  require_type(is_floating(output.context.dtype()), "attend_into: context cannot be {}",
               name(output.context.dtype()));
  if (output.lse.numel() == 0) return;
  const DType steps = compute_type(q.dtype());
  require(output.lse.shape() == rows, "attend_into: lse is {}, the result {}", output.lse.shape(),
          rows);
  require_type(output.lse.dtype() == steps, "attend_into: lse is {}, {} is needed",
               name(output.lse.dtype()), name(steps));
}

void run_into(const AttendOutput& output, const AttendProblem& problem) {
  choose_engine(problem, {forward_job(problem)}, "attend_into").attend(problem, output);
}

Tensor weights_before_dropout(AttendProblem problem, const TensorView& lse) {
  problem.options.dropout = 0.0;
  return choose_engine(problem, {Job::weights}, "attend").weights(problem, lse, {});
}

// Context and lse by one engine, weights and scores each by whoever does that job.
AttendResult run_jobs(const EngineEntry& engine, const AttendProblem& problem) {
  AttendResult result;
  const AttendOptions& options = problem.options;
  const Shape rows{problem.q.dim(0), problem.q.dim(1), problem.q.dim(2)};
  const Device device = problem.q.device();
  result.context =
      Tensor::empty({rows[0], rows[1], rows[2], problem.v.dim(3)}, problem.q.dtype(), device);
  if (options.return_lse || options.return_weights) {
    result.lse = Tensor::empty(rows, compute_type(problem.q.dtype()), device);
  }
  engine.attend(problem, {result.context, result.lse});
  if (options.return_weights) result.weights = weights_before_dropout(problem, result.lse);
  if (options.return_scores != ScoresTap::none) {
    result.scores = choose_scores_engine(problem, "attend").scores(problem);
  }
  if (!options.return_lse) result.lse = Tensor();
  return result;
}

AttendResult run(const AttendProblem& problem) {
  const UseThreads limit(problem.options.threads);
  const UseStream use(problem.options.stream);
  const EngineEntry& engine = choose_engine(problem, {forward_job(problem)}, "attend");
  return engine.attend_whole != nullptr ? engine.attend_whole(problem) : run_jobs(engine, problem);
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
  const UseStream use(options.stream);
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
