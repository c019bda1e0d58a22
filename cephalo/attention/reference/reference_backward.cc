#include "cephalo/attention/reference/reference_backward.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cephalo/attention/reference/dropout.h"
#include "cephalo/core/matmul.h"
#include "cephalo/core/ops.h"
#include "cephalo/core/rows.h"

namespace cephalo {
namespace {

constexpr double kHidden = -std::numeric_limits<double>::infinity();

struct Range {
  dim_t begin, end;
};
// The indices of an axis of `full` that index n of the bias's own axis of `size` was used at.
Range repeated(dim_t n, dim_t size, dim_t full) {
  return size == full ? Range{n, n + 1} : Range{0, full};
}

// t dense and of T: itself where it is that, 16 bits widened.
template <typename T>
MaybeCopied dense_as(const TensorView& t) {
  if (t.dtype() == DTypeOf<T>::value) return contiguous(t);
  return MaybeCopied(Tensor::copy(t, DTypeOf<T>::value));
}

}  // namespace

template <typename T>
ReferenceBackward<T>::ReferenceBackward(const BackwardProblem& problem, const char* function)
    : p_(problem.forward),
      gradients_(problem.gradients),
      num_heads_(p_.q.dim(1)),
      num_kv_heads_(p_.k.dim(1)),
      q_tokens_(p_.q.dim(2)),
      kv_tokens_(p_.k.dim(2)),
      context_(dense_as<T>(problem.pass.context)),
      lse_(contiguous(problem.pass.lse)),
      dcontext_(dense_as<T>(problem.pass.dcontext)),
      dlse_(contiguous(problem.pass.dlse)),
      steps_(p_, function),
      weights_(steps_.tensor()) {}

template <typename T>
void ReferenceBackward<T>::run() {
  find_visible();
  recompute_weights();
  draw_again();
  multiply_weights_and_values_backward();
  drop(dscores_);
  softmax_backward();
  add_bias_backward();
  softcap_backward();
  scale(dscores_);
  multiply_queries_and_keys_backward();
}

template <typename T>
Tensor ReferenceBackward<T>::allocate_pairs(DType dtype) const {
  return Tensor::empty({p_.q.dim(0), num_heads_, q_tokens_, kv_tokens_}, dtype);
}

template <typename T>
double ReferenceBackward<T>::lse_of(const PairRow& row) const {
  return static_cast<double>(lse_.view().template data_as<T>()[row_number(row)]);
}

template <typename T>
void ReferenceBackward<T>::find_visible() {
  visible_ = allocate_pairs(DType::u8);
  for_rows<std::uint8_t>(visible_, 4.0, 0, [&](const PairRow& row, std::uint8_t* keep, double*) {
    p_.mask.row(row.b, row.h, row.i, keep);
    if (lse_of(row) == kHidden) std::fill_n(keep, kv_tokens_, std::uint8_t{0});
  });
}

template <typename T>
void ReferenceBackward<T>::recompute_weights() {
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

template <typename T>
void ReferenceBackward<T>::draw_again() {
  if (p_.options.dropout > 0.0) kept_ = draw_kept(p_);
}

template <typename T>
void ReferenceBackward<T>::drop(Tensor& pairs) const {
  if (p_.options.dropout > 0.0) apply_dropout<T>(pairs, kept_, p_.options.dropout);
}

template <typename T>
Tensor ReferenceBackward<T>::dropped(const Tensor& pairs) const {
  Tensor copy = Tensor::copy(pairs);
  drop(copy);
  return copy;
}

// 4d  dv = weightsᵀ dcontext, dweights = dcontext vᵀ ← context = weights v
template <typename T>
void ReferenceBackward<T>::multiply_weights_and_values_backward() {
  if (p_.options.dropout > 0.0) {
    multiply_transposed(dropped(weights_), dcontext_.view(), gradients_.dv);
  } else {
    multiply_transposed(weights_, dcontext_.view(), gradients_.dv);
  }
  dscores_ = allocate_pairs(DTypeOf<T>::value);
  multiply_pairs(dcontext_.view(), p_.v, dscores_);
}

// 4c  dscores = weights (dweights − delta) ← weights = softmax(scores), lse = log Σ exp(scores)
template <typename T>
void ReferenceBackward<T>::softmax_backward() {
  for_rows<T>(dscores_, 4.0, 0, [&](const PairRow& row, T* dscores, double*) {
    const std::uint8_t* visible = visible_from(row);
    const T* weights = row_of(weights_, row);
    const double delta = delta_of(row, dscores);
    for (dim_t j = 0; j < kv_tokens_; ++j) {
      const double dweight = static_cast<double>(dscores[j]);
      const double dscore = static_cast<double>(weights[j]) * (dweight - delta);
      dscores[j] = visible[j] != 0 ? static_cast<T>(dscore) : T{0};
    }
  });
}

template <typename T>
double ReferenceBackward<T>::weighted_sum(const T* weights, const T* dweights) const {
  double sum = 0.0;
  for (dim_t j = 0; j < kv_tokens_; ++j) {
    if (weights[j] == T{0}) continue;  // hidden: dweight may be no number
    sum += static_cast<double>(weights[j]) * static_cast<double>(dweights[j]);
  }
  return sum;
}

template <typename T>
double ReferenceBackward<T>::dlse_of(const PairRow& row) const {
  const TensorView& dlse = dlse_.view();
  return dlse.numel() == 0 ? 0.0 : static_cast<double>(dlse.data_as<T>()[row_number(row)]);
}

template <typename T>
double ReferenceBackward<T>::delta_of(const PairRow& row, const T* dweights) const {
  if (divides_by_sum(p_, lse_of(row))) {
    return weighted_sum(row_of(weights_, row), dweights) - dlse_of(row);
  }
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

// dbias = dscores ← scores = scores + bias
template <typename T>
void ReferenceBackward<T>::add_bias_backward() {
  for (const MutableTensorView& dbias : gradients_.dbias) sum_into(dbias, dscores_);
}

template <typename T>
void ReferenceBackward<T>::sum_into(const MutableTensorView& dbias, const Tensor& pairs) const {
  if (dbias.numel() == 0) return;
  const dim_t heads = dbias.dim(1), queries = dbias.dim(2), keys = dbias.dim(3);
  const Region region{.pieces = dbias.numel() / keys,
                      .flops = static_cast<double>(pairs.numel()),
                      .scratch_bytes = static_cast<std::size_t>(keys) * sizeof(double)};
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
          const T* row = row_of(pairs, {from_b, from_h, from_i});
          for (dim_t j = 0; j < kv_tokens_; ++j) sums[keys == 1 ? 0 : j] += row[j];
        }
      }
    }
    T* to = dbias.template mutable_data_as<T>() + row_offset(dbias, b, h, i);
    const dim_t stride = dbias.strides()[3];
    for (dim_t j = 0; j < keys; ++j) to[j * stride] = static_cast<T>(sums[j]);
  });
}

// dscores = dscores (1 − (scores / c)²) ← scores = c tanh(scores / c)
template <typename T>
void ReferenceBackward<T>::softcap_backward() {
  if (!p_.options.softcap) return;
  const double cap = *p_.options.softcap;
  for_rows<T>(dscores_, 4.0, 0, [&](const PairRow& row, T* dscores, double*) {
    const std::uint8_t* visible = visible_from(row);
    const T* capped = row_of(capped_, row);
    for (dim_t j = 0; j < kv_tokens_; ++j) {
      const double tanh = static_cast<double>(capped[j]) / cap;
      if (visible[j] != 0) dscores[j] = static_cast<T>(dscores[j] * (1.0 - tanh * tanh));
    }
  });
}

template <typename T>
void ReferenceBackward<T>::scale(Tensor& pairs) const {
  for_rows<T>(pairs, 1.0, 0, [&](const PairRow&, T* numbers, double*) {
    for (dim_t j = 0; j < kv_tokens_; ++j) numbers[j] = static_cast<T>(numbers[j] * p_.scale);
  });
}

// 4a  dq = dscores k, dk = dscoresᵀ q ← scores = q kᵀ
template <typename T>
void ReferenceBackward<T>::multiply_queries_and_keys_backward() {
  multiply(dscores_, p_.k, gradients_.dq);
  multiply_transposed(dscores_, p_.q, gradients_.dk);
}

template <typename T>
void ReferenceBackward<T>::multiply_pairs(const TensorView& a, const TensorView& b,
                                          Tensor& pairs) const {
  matmul_into(grouped(a, num_kv_heads_), transpose(shared_by_group(b, num_heads_), 3, 4),
              grouped(pairs.mutable_view(), num_kv_heads_));
}

template <typename T>
void ReferenceBackward<T>::multiply(const Tensor& pairs, const TensorView& t,
                                    const MutableTensorView& out) const {
  matmul_into(grouped(static_cast<const TensorView&>(pairs), num_kv_heads_),
              shared_by_group(t, num_heads_), grouped(out, num_kv_heads_), {visible_keys, this});
}

template <typename T>
void ReferenceBackward<T>::multiply_transposed(const Tensor& pairs, const TensorView& t,
                                               const MutableTensorView& out) const {
  const dim_t batch = p_.q.dim(0);
  const TensorView joined = view(pairs, {batch, num_kv_heads_, group_rows(), kv_tokens_});
  const MaybeCopied t_joined = reshape(t, {batch, num_kv_heads_, group_rows(), t.dim(3)});
  matmul_into(transpose(joined, 2, 3), t_joined, out, {visible_queries, this});
}

template <typename T>
void ReferenceBackward<T>::visible_keys(const void* self, dim_t matrix, dim_t i,
                                        std::uint8_t* keep) {
  const auto& me = *static_cast<const ReferenceBackward*>(self);
  std::copy_n(me.visible_from({0, matrix, i}), me.kv_tokens_, keep);
}

template <typename T>
void ReferenceBackward<T>::visible_queries(const void* self, dim_t matrix, dim_t j,
                                           std::uint8_t* keep) {
  const auto& me = *static_cast<const ReferenceBackward*>(self);
  const dim_t rows = me.group_rows();
  const std::uint8_t* from = me.visible_from({0, matrix * me.num_heads_ / me.num_kv_heads_, 0}) + j;
  for (dim_t row = 0; row < rows; ++row) keep[row] = from[row * me.kv_tokens_];
}

template class ReferenceBackward<float>;
template class ReferenceBackward<double>;

void attend_backward_reference(const BackwardProblem& problem) {
  constexpr const char* kFunction = "attend_backward";
  if (problem.forward.q.dtype() == DType::f64) {
    ReferenceBackward<double>(problem, kFunction).run();
  } else {
    ReferenceBackward<float>(problem, kFunction).run();
  }
}

}  // namespace cephalo
