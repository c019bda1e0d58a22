#include "tests/support/rounded_attention.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tests/support/dense.h"

namespace cephalo::testing {
namespace {

using Numbers = std::vector<double>;

// A matrix that is read and added to by row and column.
struct Matrix {
  Matrix(dim_t row_count, dim_t column_count)
      : columns(column_count), numbers(static_cast<std::size_t>(row_count * column_count)) {}
  explicit Matrix(const TensorView& t) : columns(t.dim(-1)), numbers(dense<double>(t)) {}
  double* row(dim_t i) { return numbers.data() + i * columns; }
  const double* row(dim_t i) const { return numbers.data() + i * columns; }
  Tensor tensor() const {
    Tensor t = Tensor::empty({static_cast<dim_t>(numbers.size()) / columns, columns}, DType::f64);
    std::copy(numbers.begin(), numbers.end(), t.mutable_data_as<double>());
    return t;
  }

  dim_t columns;
  Numbers numbers;
};

double dot(const double* a, const double* b, dim_t count) {
  double sum = 0.0;
  for (dim_t n = 0; n < count; ++n) sum += a[n] * b[n];
  return sum;
}

void add_times(double* to, double factor, const double* from, dim_t count) {
  for (dim_t n = 0; n < count; ++n) to[n] += factor * from[n];
}

// scores: [count], rounded -> weights; lse is returned
double softmax(const double* scores, dim_t count, double* weights) {
  const double top = *std::max_element(scores, scores + count);
  double sum = 0.0;
  for (dim_t j = 0; j < count; ++j) sum += weights[j] = std::exp(scores[j] - top);
  for (dim_t j = 0; j < count; ++j) weights[j] /= sum;
  return top + std::log(sum);
}

}  // namespace

template <typename T>
RoundedAttention rounded_attention(const RoundedPass& pass) {
  const Matrix q(pass.q), k(pass.k), v(pass.v), bias(pass.bias), dcontext(pass.dcontext);
  const Numbers dlse = dense<double>(pass.dlse);
  const dim_t queries = pass.q.dim(0), keys = pass.k.dim(0);
  Matrix scores(queries, keys), weights(queries, keys), context(queries, v.columns);
  Matrix dq(queries, q.columns), dk(keys, k.columns), dv(keys, v.columns), dbias(queries, keys);
  Matrix lse(queries, 1);
  for (dim_t i = 0; i < queries; ++i) {
    for (dim_t j = 0; j < keys; ++j) {
      const double score = dot(q.row(i), k.row(j), q.columns) + bias.row(i)[j];
      scores.row(i)[j] = static_cast<double>(static_cast<T>(score));
    }
    double* w = weights.row(i);
    lse.row(i)[0] = softmax(scores.row(i), keys, w);
    for (dim_t j = 0; j < keys; ++j) add_times(context.row(i), w[j], v.row(j), v.columns);
    const double delta = dot(dcontext.row(i), context.row(i), v.columns);
    for (dim_t j = 0; j < keys; ++j) {
      const double dweight = dot(dcontext.row(i), v.row(j), v.columns);
      const double dscore = w[j] * (dweight - delta + dlse[static_cast<std::size_t>(i)]);
      dbias.row(i)[j] = dscore;
      add_times(dv.row(j), w[j], dcontext.row(i), v.columns);
      add_times(dq.row(i), dscore, k.row(j), k.columns);
      add_times(dk.row(j), dscore, q.row(i), q.columns);
    }
  }
  Tensor row_lse = Tensor::empty({queries}, DType::f64);
  std::copy(lse.numbers.begin(), lse.numbers.end(), row_lse.mutable_data_as<double>());
  return {weights.tensor(), context.tensor(), std::move(row_lse), dq.tensor(),
          dk.tensor(),      dv.tensor(),      dbias.tensor()};
}

template RoundedAttention rounded_attention<float>(const RoundedPass&);
template RoundedAttention rounded_attention<double>(const RoundedPass&);

}  // namespace cephalo::testing
