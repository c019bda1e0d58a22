#include "cephalo/attention/weights.h"

#include "cephalo/attention/engine/engine.h"
#include "cephalo/core/fail.h"
#include "cephalo/core/parallel.h"

namespace cephalo {
namespace {

// lse as [batch, num_heads, q_tokens] with the strides that it has.
TensorView checked_lse(const AttendProblem& p, const TensorView& lse, const char* function) {
  const TensorView rows = with_leading_ones(lse, 3);
  const Shape full{p.q.dim(0), p.q.dim(1), p.q.dim(2)};
  require(rows.shape() == full, "{}: lse is {}, q needs {}", function, lse.shape(), full);
  const DType steps = compute_type(p.q.dtype());
  require_type(lse.dtype() == steps, "{}: lse is {}, {} is needed", function, name(lse.dtype()),
               name(steps));
  return rows;
}

// Options without what has no part in weights before dropout.
AttendOptions without_dropout(AttendOptions options) {
  options.dropout = 0.0;
  return options;
}

AttendOptions options_for(const AttendOptions& options, const WeightsSelection& selection) {
  require(!selection.dropped || options.dropout_stream == DropoutStream::counter,
          "weights: only the counter stream of dropout can be drawn again");
  return selection.dropped ? options : without_dropout(options);
}

Tensor selected_weights(const AttendProblem& problem, const TensorView& lse,
                        const WeightsSelection& selection) {
  const TensorView rows = checked_lse(problem, lse, "weights");
  const UseThreads limit(problem.options.threads);
  return choose_engine(problem, {Job::weights}, "weights").weights(problem, rows, selection);
}

}  // namespace

Tensor weights(const TensorView& q, const TensorView& k, const TensorView& lse, const Mask& mask,
               const AttendOptions& options, const WeightsSelection& selection) {
  return selected_weights(make_problem(q, k, k, mask, options_for(options, selection), "weights"),
                          lse, selection);
}

Tensor weights(const TensorView& q, const KVCache& cache, const TensorView& lse, const Mask& mask,
               const AttendOptions& options, const WeightsSelection& selection) {
  return selected_weights(make_problem(q, cache, mask, options_for(options, selection), "weights"),
                          lse, selection);
}

PooledWeights pooled_weights(const TensorView& q, const TensorView& k, const TensorView& lse,
                             dim_t cells, dim_t head, dim_t batch, const Mask& mask,
                             const AttendOptions& options) {
  constexpr const char* kName = "pooled_weights";
  const AttendProblem p = make_problem(q, k, k, mask, without_dropout(options), kName);
  require(cells > 0, "{}: cells ({}) must be > 0", kName, cells);
  require(0 <= head && head < p.q.dim(1), "{}: head {} is not in [0, {})", kName, head, p.q.dim(1));
  require(0 <= batch && batch < p.q.dim(0), "{}: batch {} is not in [0, {})", kName, batch,
          p.q.dim(0));
  require(p.q.dim(2) > 0 && p.k.dim(2) > 0, "{}: there are no pairs: q {}, k {}", kName, q.shape(),
          k.shape());
  const TensorView rows = checked_lse(p, lse, kName);
  const UseThreads limit(options.threads);
  return choose_engine(p, {Job::pooled_weights}, kName)
      .pooled_weights(p, rows, {cells, head, batch});
}

Tensor row_sums(const TensorView& q, const TensorView& k, const TensorView& lse,
                const TensorView& tokens, const Mask& mask, const AttendOptions& options) {
  constexpr const char* kName = "row_sums";
  const AttendProblem p = make_problem(q, k, k, mask, without_dropout(options), kName);
  const TensorView rows = checked_lse(p, lse, kName);
  const dim_t kv_tokens = p.mask.whole().kv_tokens;
  if (tokens.numel() > 0) {
    require_type(tokens.dtype() == DType::i64, "{}: tokens are {}, int64 is needed", kName,
                 name(tokens.dtype()));
    require(tokens.rank() == 1 && tokens.is_contiguous() && tokens.dim(0) == kv_tokens,
            "{}: tokens {} must be dense [{} (kv_tokens)]", kName, tokens.shape(), kv_tokens);
  }
  const UseThreads limit(options.threads);
  return choose_engine(p, {Job::row_sums}, kName).row_sums(p, rows, tokens);
}

}  // namespace cephalo
