#include "cephalo/attention/reference/reference.h"

#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "cephalo/attention/reference/dropout.h"
#include "cephalo/attention/reference/scores.h"
#include "cephalo/core/matmul.h"
#include "cephalo/core/ops.h"

namespace cephalo {
namespace {

constexpr double kHidden = -std::numeric_limits<double>::infinity();

// The textbook, one method a step, on one tensor that is scores first and weights later.
template <typename T>
class ReferenceAttention {
 public:
  ReferenceAttention(const AttendProblem& problem, StepSink* sink)
      : p_(problem),
        sink_(sink),
        num_heads_(problem.q.dim(1)),
        q_tokens_(problem.q.dim(2)),
        kv_tokens_(problem.k.dim(2)),
        steps_(problem, "attend"),
        scores_(steps_.tensor()) {}

  AttendResult run() {
    steps_.multiply_queries_and_keys();
    show("scores");
    const ScoresTap tap = p_.options.return_scores;
    // A mask that merely hides commutes with a positive scale; then the order is the book's.
    const bool book_order = !p_.mask.adds() && !p_.options.softcap && p_.scale > 0.0 &&
                            (tap == ScoresTap::none || tap == ScoresTap::masked);
    if (book_order) {
      steps_.hide();
      show("scores_masked");
      steps_.scale();
      show("scores_scaled");
    } else {
      steps_.scale();
      show("scores_scaled");
      keep_scores_at(ScoresTap::scaled);
      steps_.softcap();
      keep_scores_at(ScoresTap::softcapped);
      steps_.add_bias();
      steps_.hide();
      show("scores_masked");
    }
    keep_scores_at(ScoresTap::masked);
    softmax();
    show("weights");
    if (p_.options.dropout > 0.0) {
      if (p_.options.return_weights) result_.weights = Tensor::copy(scores_);
      apply_dropout<T>(scores_, draw_kept(p_), p_.options.dropout);
    }
    show("weights_dropped");
    multiply_weights_and_values();
    if (sink_ != nullptr) sink_->step("context_heads", result_.context);
    if (p_.options.return_weights && p_.options.dropout == 0.0)
      result_.weights = std::move(scores_);
    return std::move(result_);
  }

 private:
  void show(const char* key) {
    if (sink_ != nullptr) sink_->step(key, scores_);
  }

  void keep_scores_at(ScoresTap point) {
    if (p_.options.return_scores == point) result_.scores = Tensor::copy(scores_);
  }

  // 4c  weights = softmax(scores); lse = log Σ exp(scores)
  void softmax() {
    const bool wants_lse = p_.options.return_lse;
    if (wants_lse) {
      result_.lse = Tensor::full({p_.q.dim(0), num_heads_, q_tokens_}, kHidden, DTypeOf<T>::value);
    }
    T* lse = wants_lse ? result_.lse.template mutable_data_as<T>() : nullptr;
    const std::size_t doubles = 2 * static_cast<std::size_t>(kv_tokens_);
    for_rows<T>(scores_, 20.0, doubles, [&](const PairRow& row, T* scores, double* scratch) {
      double* weights = scratch + kv_tokens_;
      for (dim_t j = 0; j < kv_tokens_; ++j) scratch[j] = static_cast<double>(scores[j]);
      const double sum = softmax_row(scratch, kv_tokens_, weights);
      for (dim_t j = 0; j < kv_tokens_; ++j) scores[j] = static_cast<T>(weights[j]);
      if (wants_lse) lse[(row.b * num_heads_ + row.h) * q_tokens_ + row.i] = static_cast<T>(sum);
    });
  }

  // 4d  context = weights v, over the visible keys alone: 0 · NaN would be NaN
  void multiply_weights_and_values() {
    result_.context =
        Tensor::empty({p_.q.dim(0), num_heads_, q_tokens_, p_.v.dim(3)}, p_.q.dtype());
    RowFilter visible;
    if (!p_.mask.hides_nothing()) {
      visible.context = this;
      visible.fill = [](const void* self, dim_t matrix, dim_t row, std::uint8_t* keep) {
        const auto& me = *static_cast<const ReferenceAttention*>(self);
        me.p_.mask.row(matrix / me.num_heads_, matrix % me.num_heads_, row, keep);
      };
    }
    const dim_t num_kv_heads = p_.v.dim(1);
    matmul_into(grouped(static_cast<const TensorView&>(scores_), num_kv_heads),
                shared_by_group(p_.v, num_heads_),
                grouped(result_.context.mutable_view(), num_kv_heads), visible);
  }

  const AttendProblem& p_;
  StepSink* sink_;
  dim_t num_heads_;
  dim_t q_tokens_;
  dim_t kv_tokens_;
  ReferenceScores<T> steps_;
  Tensor& scores_;  // that of the steps
  AttendResult result_;
};

}  // namespace

namespace {

// k or v of a cache, whole: what was evicted or is not there yet is 0, and hidden.
Tensor gather_rows(const AttendProblem& problem, const TensorView& like, bool keys) {
  Tensor all = Tensor::zeros(like.shape(), like.dtype());
  const std::size_t row_bytes = static_cast<std::size_t>(like.dim(3)) * item_size(like.dtype());
  std::vector<const void*> rows(static_cast<std::size_t>(like.dim(2)));
  for (dim_t b = 0; b < like.dim(0); ++b) {
    const dim_t first = problem.cache->first_kept(b);
    const dim_t count = problem.cache->lengths()[static_cast<std::size_t>(b)] - first;
    for (dim_t h = 0; h < like.dim(1) && count > 0; ++h) {
      const RowPlace place{b, h, first, count};
      keys ? problem.key_rows(place, rows.data()) : problem.value_rows(place, rows.data());
      auto* to = static_cast<std::byte*>(
          all.mutable_view()[b][h].slice(0, first, first + count).mutable_data());
      for (dim_t j = 0; j < count; ++j) {
        std::memcpy(to + static_cast<std::size_t>(j) * row_bytes, rows[static_cast<std::size_t>(j)],
                    row_bytes);
      }
    }
  }
  return all;
}

}  // namespace

AttendResult attend_reference(const AttendProblem& problem, StepSink* sink) {
  if (problem.cache != nullptr) {
    const Tensor k = gather_rows(problem, problem.k, true);
    const Tensor v = gather_rows(problem, problem.v, false);
    AttendProblem dense = problem;
    dense.k = k;
    dense.v = v;
    dense.cache = nullptr;
    return attend_reference(dense, sink);
  }
  if (problem.q.dtype() == DType::f64) return ReferenceAttention<double>(problem, sink).run();
  return ReferenceAttention<float>(problem, sink).run();
}

}  // namespace cephalo
