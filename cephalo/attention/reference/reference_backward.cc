#include "cephalo/attention/reference/reference_backward.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cephalo/attention/reference/dropout.h"
#include "cephalo/attention/reference/scores.h"
#include "cephalo/core/matmul.h"
#include "cephalo/core/ops.h"
#include "cephalo/core/rows.h"
#include "cephalo/core/views.h"

namespace cephalo {
namespace {

constexpr double kHidden = -std::numeric_limits<double>::infinity();

// The steps of reference.cc in reverse. Products run over visible pairs alone: what is hidden has
// gradient 0, and 0 · NaN would be NaN.
template <typename T>
class ReferenceBackward {
 public:
  explicit ReferenceBackward(const BackwardProblem& problem)
      : p_(problem.forward),
        gradients_(problem.gradients),
        num_heads_(p_.q.dim(1)),
        num_kv_heads_(p_.k.dim(1)),
        q_tokens_(p_.q.dim(2)),
        kv_tokens_(p_.k.dim(2)),
        context_(contiguous(problem.pass.context)),
        lse_(contiguous(problem.pass.lse)),
        dcontext_(contiguous(problem.pass.dcontext)),
        dlse_(contiguous(problem.pass.dlse)),
        steps_(p_, "attend_backward"),
        weights_(steps_.tensor()) {}

  void run() {
    find_visible();
    recompute_weights();
    multiply_weights_and_values_backward();
    drop_backward();
    softmax_backward();
    add_bias_backward();
    softcap_backward();
    scale_backward();
    multiply_queries_and_keys_backward();
  }

 private:
  Tensor allocate_pairs(DType dtype) const {
    return Tensor::empty({p_.q.dim(0), num_heads_, q_tokens_, kv_tokens_}, dtype);
  }
  dim_t row_number(const PairRow& row) const {
    return (row.b * num_heads_ + row.h) * q_tokens_ + row.i;
  }
  double lse_of(const PairRow& row) const {
    return static_cast<double>(lse_.view().template data_as<T>()[row_number(row)]);
  }
  const std::uint8_t* visible_from(const PairRow& row) const {
    return visible_.data_as<std::uint8_t>() + row_number(row) * kv_tokens_;
  }

  // A row whose lse is −inf has looked at nothing, whatever the mask allowed.
  void find_visible() {
    visible_ = allocate_pairs(DType::u8);
    for_rows<std::uint8_t>(visible_, 4.0, 0, [&](const PairRow& row, std::uint8_t* keep, double*) {
      p_.mask.row(row.b, row.h, row.i, keep);
      if (lse_of(row) == kHidden) std::fill_n(keep, kv_tokens_, std::uint8_t{0});
    });
  }

  // Forward again: weights = exp(scores − lse), which softmax made; it makes them again where lse
  // has lost too much
  void recompute_weights() {
    steps_.multiply_queries_and_keys();
    steps_.scale();
    steps_.softcap();
    if (p_.options.softcap) capped_ = Tensor::copy(weights_);
    steps_.add_bias();
    const std::size_t doubles = 2 * static_cast<std::size_t>(kv_tokens_);
    for_rows<T>(weights_, 20.0, doubles, [&](const PairRow& row, T* scores, double* scratch) {
      const std::uint8_t* visible = visible_from(row);
      if (divides_by_sum(p_, lse_of(row))) {
        for (dim_t j = 0; j < kv_tokens_; ++j) {
          scratch[j] = visible[j] != 0 ? static_cast<double>(scores[j]) : kHidden;
        }
        double* weights = scratch + kv_tokens_;
        softmax_row(scratch, kv_tokens_, weights);
        for (dim_t j = 0; j < kv_tokens_; ++j) scores[j] = static_cast<T>(weights[j]);
        return;
      }
      const double lse = lse_of(row);
      for (dim_t j = 0; j < kv_tokens_; ++j) {
        const double score = static_cast<double>(scores[j]);
        scores[j] = visible[j] != 0 ? static_cast<T>(std::exp(score - lse)) : T{0};
      }
    });
  }

  // 4d  dv = weightsᵀ dcontext, dweights = dcontext vᵀ ← context = weights v
  void multiply_weights_and_values_backward() {
    if (p_.options.dropout > 0.0) {
      kept_ = draw_kept(p_);
      Tensor dropped = Tensor::copy(weights_);
      apply_dropout<T>(dropped, kept_, p_.options.dropout);
      multiply_transposed(dropped, dcontext_.view(), gradients_.dv);
    } else {
      multiply_transposed(weights_, dcontext_.view(), gradients_.dv);
    }
    dscores_ = allocate_pairs(DTypeOf<T>::value);
    const TensorView values = shared_by_group(p_.v, num_heads_);
    matmul_into(grouped(dcontext_.view(), num_kv_heads_), transpose(values, 3, 4),
                grouped(dscores_.mutable_view(), num_kv_heads_));
  }

  // dweights = dweights · (0 or 1 / (1 − p)) ← weights = weights · (0 or 1 / (1 − p))
  void drop_backward() {
    if (p_.options.dropout > 0.0) apply_dropout<T>(dscores_, kept_, p_.options.dropout);
  }

  // 4c  dscores = weights (dweights − Σ weights dweights + dlse) ← weights = softmax(scores),
  //     lse = log Σ exp(scores); Σ weights dweights = dcontext · context, but for rows whose
  //     weights are not the forward's to the last digit
  void softmax_backward() {
    for_rows<T>(dscores_, 4.0, 0, [&](const PairRow& row, T* dscores, double*) {
      const std::uint8_t* visible = visible_from(row);
      const T* weights = weights_.template data_as<T>() + row_number(row) * kv_tokens_;
      const double delta = divides_by_sum(p_, lse_of(row))
                               ? weighted_sum(weights, dscores) - dlse_of(row)
                               : delta_of(row);
      for (dim_t j = 0; j < kv_tokens_; ++j) {
        const double dweight = static_cast<double>(dscores[j]);
        const double dscore = static_cast<double>(weights[j]) * (dweight - delta);
        dscores[j] = visible[j] != 0 ? static_cast<T>(dscore) : T{0};
      }
    });
  }

  double weighted_sum(const T* weights, const T* dweights) const {
    double sum = 0.0;
    for (dim_t j = 0; j < kv_tokens_; ++j) {
      if (weights[j] == T{0}) continue;  // hidden: dweight may be no number
      sum += static_cast<double>(weights[j]) * static_cast<double>(dweights[j]);
    }
    return sum;
  }

  double dlse_of(const PairRow& row) const {
    const TensorView& dlse = dlse_.view();
    return dlse.numel() == 0 ? 0.0 : static_cast<double>(dlse.data_as<T>()[row_number(row)]);
  }

  double delta_of(const PairRow& row) const {
    const dim_t v_dim = p_.v.dim(3);
    const dim_t r = row_number(row);
    const T* context = context_.view().template data_as<T>() + r * v_dim;
    const T* dcontext = dcontext_.view().template data_as<T>() + r * v_dim;
    double sum = 0.0;
    for (dim_t d = 0; d < v_dim; ++d) {
      sum += static_cast<double>(dcontext[d]) * static_cast<double>(context[d]);
    }
    return sum - dlse_of(row);
  }

  // dbias = dscores, summed over the axes along which it was repeated ← scores = scores + bias
  void add_bias_backward() {
    for (const MutableTensorView& dbias : gradients_.dbias) sum_into(dbias);
  }

  // dbias: [batch | 1, num_heads | 1, q_tokens | 1, kv_tokens | 1]
  // Each of its numbers is one chain in the order of batch, head, query and key.
  void sum_into(const MutableTensorView& dbias) {
    if (dbias.numel() == 0) return;
    const dim_t heads = dbias.dim(1), queries = dbias.dim(2), keys = dbias.dim(3);
    const Region region{.pieces = dbias.numel() / keys,
                        .flops = static_cast<double>(dscores_.numel()),
                        .scratch_bytes = static_cast<std::size_t>(keys) * sizeof(double)};
    const auto* dscores = dscores_.template data_as<T>();
    parallel_for(region, [&](dim_t piece, std::byte* scratch) {
      auto* sums = reinterpret_cast<double*>(scratch);
      for (dim_t j = 0; j < keys; ++j) sums[j] = 0.0;
      const dim_t b = piece / queries / heads, h = piece / queries % heads, i = piece % queries;
      const auto [b_begin, b_end] = repeated(b, dbias.dim(0), p_.q.dim(0));
      const auto [h_begin, h_end] = repeated(h, heads, num_heads_);
      const auto [i_begin, i_end] = repeated(i, queries, q_tokens_);
      for (dim_t from_b = b_begin; from_b < b_end; ++from_b) {
        for (dim_t from_h = h_begin; from_h < h_end; ++from_h) {
          for (dim_t from_i = i_begin; from_i < i_end; ++from_i) {
            const T* row = dscores + row_number({from_b, from_h, from_i}) * kv_tokens_;
            for (dim_t j = 0; j < kv_tokens_; ++j) sums[keys == 1 ? 0 : j] += row[j];
          }
        }
      }
      T* to = dbias.template mutable_data_as<T>() + row_offset(dbias, b, h, i);
      const dim_t stride = dbias.strides()[3];
      for (dim_t j = 0; j < keys; ++j) to[j * stride] = static_cast<T>(sums[j]);
    });
  }

  struct Range {
    dim_t begin, end;
  };
  // The indices of an axis of `full` that index n of the bias's own axis of `size` was used at.
  static Range repeated(dim_t n, dim_t size, dim_t full) {
    return size == full ? Range{n, n + 1} : Range{0, full};
  }

  // dscores = dscores (1 − (scores / c)²) ← scores = c tanh(scores / c)
  void softcap_backward() {
    if (!p_.options.softcap) return;
    const double cap = *p_.options.softcap;
    for_rows<T>(dscores_, 4.0, 0, [&](const PairRow& row, T* dscores, double*) {
      const std::uint8_t* visible = visible_from(row);
      const T* capped = capped_.template data_as<T>() + row_number(row) * kv_tokens_;
      for (dim_t j = 0; j < kv_tokens_; ++j) {
        const double tanh = static_cast<double>(capped[j]) / cap;
        if (visible[j] != 0) dscores[j] = static_cast<T>(dscores[j] * (1.0 - tanh * tanh));
      }
    });
  }

  // dscores = scale · dscores ← scores = scale · scores
  void scale_backward() {
    for_rows<T>(dscores_, 1.0, 0, [&](const PairRow&, T* dscores, double*) {
      for (dim_t j = 0; j < kv_tokens_; ++j) dscores[j] = static_cast<T>(dscores[j] * p_.scale);
    });
  }

  // 4a  dq = dscores k, dk = dscoresᵀ q ← scores = q kᵀ
  void multiply_queries_and_keys_backward() {
    matmul_into(grouped(static_cast<const TensorView&>(dscores_), num_kv_heads_),
                shared_by_group(p_.k, num_heads_), grouped(gradients_.dq, num_kv_heads_),
                {visible_keys, this});
    multiply_transposed(dscores_, p_.q, gradients_.dk);
  }

  // pairs: [batch, num_heads, q_tokens, kv_tokens], t: [batch, num_heads, q_tokens, dim]
  // out = pairsᵀ t: [batch, num_kv_heads, kv_tokens, dim]. The query heads that share a key head
  // lie one after the other, in one long chain.
  void multiply_transposed(const Tensor& pairs, const TensorView& t, const MutableTensorView& out) {
    const dim_t batch = p_.q.dim(0);
    const TensorView joined = view(pairs, {batch, num_kv_heads_, group_rows(), kv_tokens_});
    const MaybeCopied t_joined = reshape(t, {batch, num_kv_heads_, group_rows(), t.dim(3)});
    matmul_into(transpose(joined, 2, 3), t_joined, out, {visible_queries, this});
  }
  dim_t group_rows() const { return num_heads_ / num_kv_heads_ * q_tokens_; }

  // Filters of matmul_into: the keys that a query of matrix [b, h] sees, and the queries of
  // all heads of matrix [b, kv_head] that see a key.
  static void visible_keys(const void* self, dim_t matrix, dim_t i, std::uint8_t* keep) {
    const auto& me = *static_cast<const ReferenceBackward*>(self);
    std::copy_n(me.visible_from({0, matrix, i}), me.kv_tokens_, keep);
  }
  static void visible_queries(const void* self, dim_t matrix, dim_t j, std::uint8_t* keep) {
    const auto& me = *static_cast<const ReferenceBackward*>(self);
    const dim_t rows = me.group_rows();
    const std::uint8_t* from =
        me.visible_from({0, matrix * me.num_heads_ / me.num_kv_heads_, 0}) + j;
    for (dim_t row = 0; row < rows; ++row) keep[row] = from[row * me.kv_tokens_];
  }

  const AttendProblem& p_;
  const AttendGradientViews& gradients_;
  dim_t num_heads_;
  dim_t num_kv_heads_;
  dim_t q_tokens_;
  dim_t kv_tokens_;
  MaybeCopied context_, lse_, dcontext_, dlse_;
  ReferenceScores<T> steps_;
  Tensor& weights_;  // that of the steps: scores first
  Tensor visible_;
  Tensor kept_;     // with dropout
  Tensor capped_;   // with softcap: the scores after it
  Tensor dscores_;  // dweights first
};

}  // namespace

void attend_backward_reference(const BackwardProblem& problem) {
  if (problem.forward.q.dtype() == DType::f64) {
    ReferenceBackward<double>(problem).run();
  } else {
    ReferenceBackward<float>(problem).run();
  }
}

}  // namespace cephalo
