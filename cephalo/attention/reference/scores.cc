#include "cephalo/attention/reference/scores.h"

#include <cmath>
#include <limits>

#include "cephalo/core/fail.h"
#include "cephalo/core/matmul.h"
#include "cephalo/core/views.h"

namespace cephalo {
namespace {

constexpr double kHidden = -std::numeric_limits<double>::infinity();

Tensor allocate_scores(const AttendProblem& p, DType dtype, const char* function) {
  try {
    return Tensor::empty({p.q.dim(0), p.q.dim(1), p.q.dim(2), p.k.dim(2)}, dtype);
  } catch (const Error& error) {
    fail(error.kind(), "{}: the reference engine stores the score of every pair; {}", function,
         error.what());
  }
}

struct Layout {
  Shape shape;
  Strides strides;
};

Layout grouped_layout(const TensorView& t, dim_t num_kv_heads) {
  const dim_t group = t.dim(1) / num_kv_heads;
  const Strides& s = t.strides();
  return {{t.dim(0), num_kv_heads, group, t.dim(2), t.dim(3)},
          {s[0], s[1] * group, s[1], s[2], s[3]}};
}

}  // namespace

TensorView shared_by_group(const TensorView& t, dim_t num_heads) {
  const Strides& s = t.strides();
  return {t.data(),
          t.dtype(),
          {t.dim(0), t.dim(1), num_heads / t.dim(1), t.dim(2), t.dim(3)},
          {s[0], s[1], 0, s[2], s[3]}};
}

TensorView grouped(const TensorView& t, dim_t num_kv_heads) {
  const auto [shape, strides] = grouped_layout(t, num_kv_heads);
  return {t.data(), t.dtype(), shape, strides};
}

MutableTensorView grouped(const MutableTensorView& t, dim_t num_kv_heads) {
  const auto [shape, strides] = grouped_layout(t, num_kv_heads);
  return {t.mutable_data(), t.dtype(), shape, strides};
}

template <typename T>
ReferenceScores<T>::ReferenceScores(const AttendProblem& problem, const char* function)
    : p_(problem),
      kv_tokens_(problem.k.dim(2)),
      scores_(allocate_scores(problem, DTypeOf<T>::value, function)) {}

template <typename T>
void ReferenceScores<T>::multiply_queries_and_keys() {
  const dim_t num_kv_heads = p_.k.dim(1);
  const TensorView keys = shared_by_group(p_.k, p_.q.dim(1));
  matmul_into(grouped(p_.q, num_kv_heads), transpose(keys, 3, 4),
              grouped(scores_.mutable_view(), num_kv_heads));
}

template <typename T>
void ReferenceScores<T>::scale() {
  for_rows<T>(scores_, 1.0, 0, [&](const PairRow&, T* scores, double*) {
    for (dim_t j = 0; j < kv_tokens_; ++j) scores[j] = static_cast<T>(scores[j] * p_.scale);
  });
}

template <typename T>
void ReferenceScores<T>::softcap() {
  if (!p_.options.softcap) return;
  const double cap = *p_.options.softcap;
  for_rows<T>(scores_, 20.0, 0, [&](const PairRow&, T* scores, double*) {
    for (dim_t j = 0; j < kv_tokens_; ++j) {
      scores[j] = static_cast<T>(cap * std::tanh(static_cast<double>(scores[j]) / cap));
    }
  });
}

template <typename T>
void ReferenceScores<T>::add_bias() {
  if (!p_.mask.adds()) return;
  for_rows<T>(scores_, 4.0, 0, [&](const PairRow& row, T* scores, double*) {
    for (dim_t j = 0; j < kv_tokens_; ++j) {
      const double added = p_.mask.added(row.b, row.h, row.i, j);
      scores[j] = static_cast<T>(static_cast<double>(scores[j]) + added);
    }
  });
}

template <typename T>
void ReferenceScores<T>::hide() {
  if (p_.mask.hides_nothing()) return;
  const std::size_t doubles = (static_cast<std::size_t>(kv_tokens_) + 7) / 8;
  for_rows<T>(scores_, 4.0, doubles, [&](const PairRow& row, T* scores, double* scratch) {
    auto* keep = reinterpret_cast<std::uint8_t*>(scratch);
    p_.mask.row(row.b, row.h, row.i, keep);
    for (dim_t j = 0; j < kv_tokens_; ++j) {
      if (keep[j] == 0) scores[j] = static_cast<T>(kHidden);
    }
  });
}

template class ReferenceScores<float>;
template class ReferenceScores<double>;

}  // namespace cephalo
