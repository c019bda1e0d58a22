#pragma once

#include <cstdint>

#include "cephalo/attention/engine/backward_problem.h"
#include "cephalo/attention/reference/scores.h"
#include "cephalo/core/views.h"

namespace cephalo {

// The steps of reference.cc in reverse. Products run over visible pairs alone: what is hidden has
// gradient 0, and 0 · NaN would be NaN.
template <typename T>
class ReferenceBackward {
 public:
  // `function` begins the message when there is no room.
  ReferenceBackward(const BackwardProblem& problem, const char* function);
  void run();

 protected:
  Tensor allocate_pairs(DType dtype) const;
  dim_t row_number(const PairRow& row) const {
    return (row.b * num_heads_ + row.h) * q_tokens_ + row.i;
  }
  const T* row_of(const Tensor& pairs, const PairRow& row) const {
    return pairs.data_as<T>() + row_number(row) * kv_tokens_;
  }
  double lse_of(const PairRow& row) const;
  const std::uint8_t* visible_from(const PairRow& row) const {
    return visible_.data_as<std::uint8_t>() + row_number(row) * kv_tokens_;
  }

  // A row whose lse is −inf has looked at nothing, whatever the mask allowed.
  void find_visible();

  // Forward again: weights = exp(scores − lse), which softmax made; it makes them again where lse
  // has lost too much
  void recompute_weights();

  // With dropout, which weights it kept.
  void draw_again();
  // The numbers of pairs · (0 or 1 / (1 − p))
  void drop(Tensor& pairs) const;
  Tensor dropped(const Tensor& pairs) const;  // a copy

  // delta = Σ weights dweights − dlse; the sum is dcontext · context, but for rows whose weights
  // are not the forward's to the last digit. dweights: of the row, after dropout.
  double delta_of(const PairRow& row, const T* dweights) const;

  // dbias: [batch | 1, num_heads | 1, q_tokens | 1, kv_tokens | 1] = pairs, summed over the axes
  // along which it was repeated. Each of its numbers is one chain in the order of batch, head,
  // query and key.
  void sum_into(const MutableTensorView& dbias, const Tensor& pairs) const;

  // pairs · scale
  void scale(Tensor& pairs) const;

  // a: [batch, num_heads, q_tokens, dim], b: [batch, num_kv_heads, kv_tokens, dim]
  // pairs = a bᵀ: [batch, num_heads, q_tokens, kv_tokens]
  void multiply_pairs(const TensorView& a, const TensorView& b, Tensor& pairs) const;
  // pairs: [batch, num_heads, q_tokens, kv_tokens], t: [batch, num_kv_heads, kv_tokens, dim]
  // out = pairs t: [batch, num_heads, q_tokens, dim]
  void multiply(const Tensor& pairs, const TensorView& t, const MutableTensorView& out) const;
  // pairs: [batch, num_heads, q_tokens, kv_tokens], t: [batch, num_heads, q_tokens, dim]
  // out = pairsᵀ t: [batch, num_kv_heads, kv_tokens, dim]. The query heads that share a key head
  // lie one after the other, in one long chain.
  void multiply_transposed(const Tensor& pairs, const TensorView& t,
                           const MutableTensorView& out) const;

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

 private:
  void multiply_weights_and_values_backward();
  void softmax_backward();
  void add_bias_backward();
  void softcap_backward();
  void multiply_queries_and_keys_backward();

  double weighted_sum(const T* weights, const T* dweights) const;
  double dlse_of(const PairRow& row) const;
  dim_t group_rows() const { return num_heads_ / num_kv_heads_ * q_tokens_; }

  // Filters of matmul_into: the keys that a query of matrix [b, h] sees, and the queries of
  // all heads of matrix [b, kv_head] that see a key.
  static void visible_keys(const void* self, dim_t matrix, dim_t i, std::uint8_t* keep);
  static void visible_queries(const void* self, dim_t matrix, dim_t j, std::uint8_t* keep);
};

// The textbook backwards: every step stored, memory grows with q_tokens × kv_tokens.
void attend_backward_reference(const BackwardProblem& problem);

}  // namespace cephalo
