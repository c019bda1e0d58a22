#include "cephalo/attention/plan.h"

#include "cephalo/attention/engine/engine.h"
#include "cephalo/core/fail.h"
#include "cephalo/core/format.h"
#include "cephalo/core/parallel.h"

namespace cephalo {
namespace {

double bytes_of(const TensorView& t) {
  return static_cast<double>(t.numel()) * static_cast<double>(item_size(t.dtype()));
}

double visible_pairs(const AttendProblem& p) {
  double pairs = 0.0;
  for (dim_t b = 0; b < p.q.dim(0); ++b) {
    for (dim_t i = 0; i < p.q.dim(2); ++i) {
      const auto [begin, end] = p.mask.span(b, i);
      pairs += static_cast<double>(end - begin);
    }
  }
  return pairs * static_cast<double>(p.q.dim(1));
}

// Who computes the weights and scores that are asked for, unless the engine has them at hand.
void add_other_jobs(const EngineEntry& engine, const AttendProblem& problem, Plan& plan) {
  const auto add = [&](const EngineEntry& other, Job job) {
    plan.others.push_back({name(job), other.engine});
    if (other.engine != engine.engine && other.scratch != nullptr) {
      plan.scratch += other.scratch(problem, job);
    }
  };
  if (engine.attend_whole != nullptr) return;
  if (problem.options.return_weights)
    add(choose_engine(problem, {Job::weights}, "plan"), Job::weights);
  if (problem.options.return_scores != ScoresTap::none) {
    add(choose_scores_engine(problem, "plan"), Job::scores);
  }
}

const EngineEntry& entry_of(Engine engine) {
  for (const EngineEntry* each : engines()) {
    if (each->engine == engine) return *each;
  }
  fail(Error::Kind::value, "plan: there is no engine {}", static_cast<int>(engine));
}

}  // namespace

Plan plan(const TensorView& q, const TensorView& k, const TensorView& v, const Mask& mask,
          const AttendOptions& options) {
  const AttendProblem problem = make_problem(q, k, v, mask, options, "plan");
  const UseThreads limit(options.threads);
  Plan result{};
  const Job forward = forward_job(problem);
  const EngineEntry& engine = choose_engine(problem, {forward}, "plan");
  result.engine = engine.engine;
  result.isa = current_isa(problem.q.dtype());
  for (const EngineEntry* each : engines()) {
    if (const char* reason = why_not(*each, problem, forward)) {
      result.refused.push_back({each->engine, reason});
    }
  }
  result.scratch = engine.scratch != nullptr ? engine.scratch(problem, forward) : 0;
  add_other_jobs(engine, problem, result);
  result.flops = 2.0 * visible_pairs(problem) * static_cast<double>(q.dim(-1) + v.dim(-1));
  result.bytes =
      bytes_of(q) * (1.0 + static_cast<double>(v.dim(-1)) / static_cast<double>(q.dim(-1))) +
      bytes_of(k) + bytes_of(v);
  for (const MaskTensor& part : mask.tensors) result.bytes += bytes_of(part.view);
  return result;
}

std::string Plan::to_string() const {
  std::string text = format_text("{} engine", name(engine));
  if (entry_of(engine).runs_on != nullptr) append_text(text, " on {}", name(isa));
  text += format_text(": {:.3g} flops, {:.3g} bytes, {} bytes of scratch", flops, bytes, scratch);
  for (const OtherJob& each : others) {
    if (each.engine != engine)
      append_text(text, "; {} by the {} engine", each.job, name(each.engine));
  }
  for (const Refusal& each : refused) {
    text += format_text("; {} refuses: {}", name(each.engine), each.reason);
  }
  return text;
}

}  // namespace cephalo
