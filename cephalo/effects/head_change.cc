#include "cephalo/effects/head_change.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "cephalo/attention/attend.h"
#include "cephalo/core/fail.h"
#include "cephalo/linear/ops.h"

namespace cephalo {
namespace {

// rows: [count, head_dim] -> their mean: [head_dim], float64
template <typename T>
Tensor mean_of(const TensorView& rows) {
  Tensor mean = Tensor::zeros({rows.dim(1)}, DType::f64);
  auto* sum = mean.mutable_data_as<double>();
  for (dim_t i = 0; i < rows.dim(0); ++i) {
    const T* row = rows.data_as<T>() + i * rows.strides()[0];
    for (dim_t d = 0; d < rows.dim(1); ++d) sum[d] += static_cast<double>(row[d]);
  }
  ops::scale(mean, 1.0 / static_cast<double>(rows.dim(0)));
  return mean;
}

// a −= b, of one shape
template <typename T>
void subtract(const MutableTensorView& a, const TensorView& b) {
  for (dim_t i = 0; i < a.dim(0); ++i) {
    T* to = a.mutable_data_as<T>() + i * a.strides()[0];
    const T* from = b.data_as<T>() + i * b.strides()[0];
    for (dim_t d = 0; d < a.dim(1); ++d) to[d] -= from[d];
  }
}

// row: [head_dim] -> every row of context
void fill_rows(const TensorView& row, const MutableTensorView& context) {
  const TensorView repeated(row.data(), row.dtype(), context.shape(), {0, row.strides()[0]});
  ops::copy(repeated, context);
}

// Rows [begin, …) of the head attend with these q to keys [first_key, …).
void attend_again(const HeadRun& run, const TensorView& q, dim_t begin, dim_t first_key,
                  const MutableTensorView& context) {
  const dim_t rows = context.dim(0);
  if (begin >= rows) return;
  attend_into({context.slice(0, begin, rows)}, q.slice(0, begin, rows),
              run.k.slice(0, first_key, run.k.dim(0)), run.v.slice(0, first_key, run.v.dim(0)),
              causal());
}

// In four sums, which the processor adds to at once.
template <typename T>
double dot(const T* a, const T* b, dim_t count) {
  double sums[4] = {};
  dim_t d = 0;
  for (; d + 4 <= count; d += 4) {
    for (dim_t k = 0; k < 4; ++k) {
      sums[k] += static_cast<double>(a[d + k]) * static_cast<double>(b[d + k]);
    }
  }
  for (; d < count; ++d) sums[0] += static_cast<double>(a[d]) * static_cast<double>(b[d]);
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// exp(score − the largest) of the keys that are left, 0 of hidden ones.
template <typename T>
std::vector<double> weigh_row(const HeadRun& run, const T* q, dim_t keys,
                              std::span<const Change> edges) {
  const dim_t head_dim = run.k.dim(1);
  const double scale = 1.0 / std::sqrt(static_cast<double>(head_dim));
  constexpr double kHidden = -std::numeric_limits<double>::infinity();
  std::vector<double> weights(static_cast<std::size_t>(keys));
  for (dim_t j = 0; j < keys; ++j) {
    const T* k = run.k.data_as<T>() + j * run.k.strides()[0];
    weights[static_cast<std::size_t>(j)] = dot(q, k, head_dim) * scale;
  }
  for (const Change& edge : edges) {
    if (edge.kind == ChangeKind::hide) weights[static_cast<std::size_t>(edge.key)] = kHidden;
  }
  const double largest = *std::max_element(weights.begin(), weights.end());
  for (double& weight : weights) weight = std::exp(weight - largest);
  return weights;
}

template <typename T>
void change_row(std::span<const Change> edges, const HeadRun& run,
                const MutableTensorView& context) {
  const dim_t query = edges.front().query;
  const dim_t row = query - run.first;
  std::vector<double> weights =
      weigh_row(run, run.q.data_as<T>() + row * run.q.strides()[0], query + 1, edges);
  double sum = 0.0;
  for (const double weight : weights) sum += weight;
  for (const Change& edge : edges) {
    if (edge.kind == ChangeKind::cut) weights[static_cast<std::size_t>(edge.key)] = 0.0;
  }
  std::vector<double> sums(static_cast<std::size_t>(run.v.dim(1)), 0.0);
  for (std::size_t j = 0; j < weights.size(); ++j) {
    const T* v = run.v.data_as<T>() + static_cast<dim_t>(j) * run.v.strides()[0];
    for (std::size_t d = 0; d < sums.size(); ++d) {
      sums[d] += weights[j] * static_cast<double>(v[d]);
    }
  }
  T* to = context.mutable_data_as<T>() + row * context.strides()[0];
  for (std::size_t d = 0; d < sums.size(); ++d) to[d] = static_cast<T>(sums[d] / sum);
}

void change_whole(const Change& change, const HeadRun& run, const HeadGiven& given,
                  const MutableTensorView& context) {
  switch (change.kind) {
    case ChangeKind::zero:
      return context.fill(0.0);
    case ChangeKind::mean: {
      const bool wide = run.whole.dtype() == DType::f64;
      const Tensor mean = wide ? mean_of<double>(run.whole) : mean_of<float>(run.whole);
      return fill_rows(mean, context);
    }
    case ChangeKind::reference_mean:
      return fill_rows(given.reference, context);
    case ChangeKind::uniform: {
      // Without q all scores are 0.
      const Tensor none = Tensor::zeros(run.q.shape(), run.q.dtype());
      return attend_again(run, none, 0, 0, context);
    }
    case ChangeKind::no_first:
      return attend_again(run, run.q, run.first == 0 ? 1 : 0, 1, context);
    case ChangeKind::patch:
      return ops::copy(given.patch, context);
    case ChangeKind::scale:
      return ops::scale(context, change.factor);
    case ChangeKind::hide:
    case ChangeKind::cut:
      break;
  }
  fail(Error::Kind::value, "{}: a head cannot be changed by {}", to_string(change),
       name(change.kind));
}

void change_edges(std::span<const Change> edges, const HeadRun& run,
                  const MutableTensorView& context) {
  const dim_t query = edges.front().query;
  if (query < run.first || query >= run.first + context.dim(0)) return;
  context.dtype() == DType::f64 ? change_row<double>(edges, run, context)
                                : change_row<float>(edges, run, context);
}

}  // namespace

std::vector<HeadChange> head_changes(const Changes& changes, dim_t layer) {
  std::vector<HeadChange> found;
  for (const Change& c : changes) {
    const bool is_edge = c.section == ModelSection::edge;
    if (c.layer != layer || (!is_edge && c.section != ModelSection::head)) continue;
    const auto same_row = std::find_if(found.begin(), found.end(), [&](const HeadChange& other) {
      const Change& its = other.changes.front();
      return is_edge && its.section == c.section && its.head == c.head && its.query == c.query;
    });
    if (same_row == found.end()) {
      found.push_back({c.head, {c}});
    } else {
      same_row->changes.push_back(c);
    }
  }
  return found;
}

Tensor context_change(const HeadChange& change, const HeadRun& run, const HeadGiven& given) {
  Tensor context = Tensor::copy(run.before);
  if (change.changes.front().section == ModelSection::edge) {
    change_edges(change.changes, run, context);
  } else {
    change_whole(change.changes.front(), run, given, context);
  }
  const bool wide = context.dtype() == DType::f64;
  wide ? subtract<double>(context, run.before) : subtract<float>(context, run.before);
  return context;
}

}  // namespace cephalo
