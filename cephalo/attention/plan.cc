#include "cephalo/attention/plan.h"

#include "cephalo/attention/engine/engine.h"
#include "cephalo/attention/fused/fused.h"
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

}  // namespace

const char* name(Engine engine) {
  switch (engine) {
    case Engine::automatic:
      return "automatic";
    case Engine::reference:
      return "reference";
    case Engine::fused:
      return "fused";
  }
  return "?";
}

const char* why_fused_refuses(const AttendOptions& options) {
  if (options.dropout > 0.0 && options.dropout_stream != DropoutStream::counter) {
    return "dropout from a torch stream draws for the whole weights matrix in its memory order; "
           "the counter stream can be drawn tile by tile";
  }
  return nullptr;
}

Engine choose_engine(const AttendOptions& options, const char* function) {
  const char* reason = why_fused_refuses(options);
  const bool fused = options.engine != Engine::reference && reason == nullptr;
  require(fused || options.engine != Engine::fused, "{}: the fused engine refuses: {}", function,
          reason);
  const Engine chosen = fused ? Engine::fused : Engine::reference;
  if (options.require == Engine::automatic || options.require == chosen) return chosen;
  fail(Error::Kind::value, "{}: {} is required, but {}", function, name(options.require),
       reason != nullptr          ? format_text("it refuses: {}", reason)
       : options.engine == chosen ? format_text("engine = {} was asked for", name(chosen))
                                  : "engine = automatic picks fused");
}

Plan plan(const TensorView& q, const TensorView& k, const TensorView& v, const Mask& mask,
          const AttendOptions& options) {
  const AttendProblem problem = make_problem(q, k, v, mask, options, "plan");
  const UseThreads limit(options.threads);
  Plan result{};
  result.engine = choose_engine(options, "plan");
  result.isa = current_isa(problem.q.dtype());
  if (const char* reason = why_fused_refuses(options)) {
    result.refused.push_back({Engine::fused, reason});
  }
  result.flops = 2.0 * visible_pairs(problem) * static_cast<double>(q.dim(-1) + v.dim(-1));
  result.bytes =
      bytes_of(q) * (1.0 + static_cast<double>(v.dim(-1)) / static_cast<double>(q.dim(-1))) +
      bytes_of(k) + bytes_of(v);
  for (const MaskTensor& part : mask.tensors) result.bytes += bytes_of(part.view);
  const auto pairs = static_cast<std::size_t>(problem.q.dim(0) * problem.q.dim(1) *
                                              problem.q.dim(2) * problem.k.dim(2));
  const std::size_t number = q.dtype() == DType::f64 ? sizeof(double) : sizeof(float);
  const bool taps = options.return_scores != ScoresTap::none && result.engine == Engine::fused;
  result.scratch = result.engine == Engine::fused
                       ? fused_scratch_bytes(problem) + (taps ? pairs * number : 0)
                       : pairs * number;
  return result;
}

std::string Plan::to_string() const {
  std::string text = format_text("{} engine", name(engine));
  if (engine == Engine::fused) text += format_text(" on {}", name(isa));
  text += format_text(": {:.3g} flops, {:.3g} bytes, {} bytes of scratch", flops, bytes, scratch);
  for (const Refusal& each : refused) {
    text += format_text("; {} refuses: {}", name(each.engine), each.reason);
  }
  return text;
}

}  // namespace cephalo
