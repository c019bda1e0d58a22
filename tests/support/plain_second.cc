#include "tests/support/plain_second.h"

#include <algorithm>
#include <cmath>

#include "tests/support/dense.h"

namespace cephalo::testing {
namespace {

// A number and how fast it moves.
struct Moving {
  long double at = 0;
  long double by = 0;
};
Moving operator+(Moving a, Moving b) {
  return {a.at + b.at, a.by + b.by};
}
Moving operator-(Moving a, Moving b) {
  return {a.at - b.at, a.by - b.by};
}
Moving operator*(Moving a, Moving b) {
  return {a.at * b.at, a.by * b.at + a.at * b.by};
}
Moving exp(Moving a) {
  const long double e = std::exp(a.at);
  return {e, e * a.by};
}
Moving log(Moving a) {
  return {std::log(a.at), a.by / a.at};
}
Moving tanh(Moving a) {
  const long double t = std::tanh(a.at);
  return {t, (1 - t * t) * a.by};
}

using Numbers = std::vector<Moving>;

Numbers moving(const TensorView& t, const TensorView& along) {
  const std::vector<double> at = dense<double>(t);
  const std::vector<double> by = dense<double>(along);
  Numbers numbers(at.size());
  for (std::size_t n = 0; n < at.size(); ++n) numbers[n] = {at[n], by.empty() ? 0.0 : by[n]};
  return numbers;
}

Tensor movement(const Numbers& numbers, const Shape& shape) {
  Tensor t = Tensor::empty(shape, DType::f64);
  std::transform(numbers.begin(), numbers.end(), t.mutable_data_as<double>(),
                 [](const Moving& m) { return static_cast<double>(m.by); });
  return t;
}

class Definition {
 public:
  Definition(const PlainPass& pass, const PlainDirection& along)
      : pass_(pass),
        along_(along),
        heads_(pass.q.dim(1)),
        q_tokens_(pass.q.dim(2)),
        kv_tokens_(pass.k.dim(2)),
        head_dim_(pass.q.dim(3)),
        v_dim_(pass.v.dim(3)),
        rows_(pass.q.dim(0) * heads_ * q_tokens_),
        group_(heads_ / pass.k.dim(1)),
        q_(moving(pass.q, along.q)),
        k_(moving(pass.k, along.k)),
        v_(moving(pass.v, along.v)),
        dcontext_(moving(pass.dcontext, {})),
        dlse_(moving(pass.dlse, {})),
        context_(size(rows_ * v_dim_)),
        lse_(size(rows_)),
        dq_(q_.size()),
        dk_(k_.size()),
        dv_(v_.size()),
        dscores_(size(rows_ * kv_tokens_)) {}

  PlainSecond run() {
    for (dim_t row = 0; row < rows_; ++row) {
      const Numbers weights = weigh(row);
      attend(row, weights);
      go_back(row, weights);
    }
    const dim_t batch = pass_.q.dim(0);
    return {movement(context_, {batch, heads_, q_tokens_, v_dim_}),
            movement(lse_, {batch, heads_, q_tokens_}),
            movement(dq_, pass_.q.shape()),
            movement(dk_, pass_.k.shape()),
            movement(dv_, pass_.v.shape()),
            movement(dscores_, {batch, heads_, q_tokens_, kv_tokens_})};
  }

 private:
  static std::size_t size(dim_t n) { return static_cast<std::size_t>(n); }
  bool visible(dim_t row, dim_t j) const { return pass_.mask.visible[size(row * kv_tokens_ + j)]; }
  dim_t key(dim_t row, dim_t j) const { return row / q_tokens_ / group_ * kv_tokens_ + j; }

  static Moving dot(const Numbers& a, dim_t i, const Numbers& b, dim_t j, dim_t dim) {
    Moving sum;
    for (dim_t d = 0; d < dim; ++d) sum = sum + a[size(i * dim + d)] * b[size(j * dim + d)];
    return sum;
  }
  // to[i] += factor · from[j]
  static void add(Numbers& to, dim_t i, Moving factor, const Numbers& from, dim_t j, dim_t dim) {
    for (dim_t d = 0; d < dim; ++d) {
      to[size(i * dim + d)] = to[size(i * dim + d)] + factor * from[size(j * dim + d)];
    }
  }
  Moving kept(dim_t row, dim_t j) const {
    if (pass_.dropout == 0.0) return {1};
    return {pass_.kept[size(row * kv_tokens_ + j)] ? 1.0L / (1.0L - pass_.dropout) : 0.0L};
  }

  Moving tanh_of_score(dim_t row, dim_t j) const {
    const Moving score = Moving{pass_.scale} * dot(q_, row, k_, key(row, j), head_dim_);
    return tanh(Moving{1.0L / pass_.softcap} * score);
  }
  Moving score(dim_t row, dim_t j) const {
    const std::size_t pair = size(row * kv_tokens_ + j);
    const Moving added{pass_.mask.added[pair], along_.added.empty() ? 0.0 : along_.added[pair]};
    if (pass_.softcap > 0) return Moving{pass_.softcap} * tanh_of_score(row, j) + added;
    return Moving{pass_.scale} * dot(q_, row, k_, key(row, j), head_dim_) + added;
  }

  // softmax over what is visible; nothing where nothing is
  Numbers weigh(dim_t row) {
    Numbers weights(size(kv_tokens_));
    long double top = -std::numeric_limits<long double>::infinity();
    for (dim_t j = 0; j < kv_tokens_; ++j) {
      if (!visible(row, j)) continue;
      weights[size(j)] = score(row, j);
      top = std::max(top, weights[size(j)].at);
    }
    Moving sum;
    for (dim_t j = 0; j < kv_tokens_; ++j) {
      if (visible(row, j)) sum = sum + exp(weights[size(j)] - Moving{top});
    }
    if (sum.at == 0) return {};
    lse_[size(row)] = log(sum) + Moving{top};
    for (dim_t j = 0; j < kv_tokens_; ++j) {
      weights[size(j)] = visible(row, j) ? exp(weights[size(j)] - lse_[size(row)]) : Moving{};
    }
    return weights;
  }

  void attend(dim_t row, const Numbers& weights) {
    for (dim_t j = 0; j < static_cast<dim_t>(weights.size()); ++j) {
      if (!visible(row, j)) continue;
      add(context_, row, kept(row, j) * weights[size(j)], v_, key(row, j), v_dim_);
    }
  }

  void go_back(dim_t row, const Numbers& weights) {
    const Moving dlse = dlse_.empty() ? Moving{} : dlse_[size(row)];
    const Moving delta = dot(dcontext_, row, context_, row, v_dim_) - dlse;
    for (dim_t j = 0; j < static_cast<dim_t>(weights.size()); ++j) {
      if (!visible(row, j)) continue;
      const dim_t at = key(row, j);
      const Moving weight = weights[size(j)];
      add(dv_, at, kept(row, j) * weight, dcontext_, row, v_dim_);
      const Moving dweight = kept(row, j) * dot(dcontext_, row, v_, at, v_dim_);
      Moving dscore = weight * (dweight - delta);
      dscores_[size(row * kv_tokens_ + j)] = dscore;
      if (pass_.softcap > 0) {
        const Moving t = tanh_of_score(row, j);
        dscore = dscore * (Moving{1} - t * t);
      }
      dscore = Moving{pass_.scale} * dscore;
      add(dq_, row, dscore, k_, at, head_dim_);
      add(dk_, at, dscore, q_, row, head_dim_);
    }
  }

  const PlainPass& pass_;
  const PlainDirection& along_;
  dim_t heads_, q_tokens_, kv_tokens_, head_dim_, v_dim_, rows_, group_;
  Numbers q_, k_, v_, dcontext_, dlse_;
  Numbers context_, lse_, dq_, dk_, dv_, dscores_;
};

}  // namespace

PlainSecond plain_second(const PlainPass& pass, const PlainDirection& along) {
  return Definition(pass, along).run();
}

}  // namespace cephalo::testing
