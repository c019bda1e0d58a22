#include "tests/support/plain_backward.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cephalo/core/random.h"
#include "tests/support/dense.h"

namespace cephalo::testing {
namespace {

template <typename T>
Tensor stored(const std::vector<T>& numbers, const Shape& shape) {
  Tensor t = Tensor::empty(shape, DTypeOf<Stored<T>>::value);
  std::transform(numbers.begin(), numbers.end(), t.template mutable_data_as<Stored<T>>(),
                 [](T x) { return static_cast<Stored<T>>(x); });
  return t;
}

template <typename T>
class PlainBackward {
 public:
  explicit PlainBackward(const PlainPass& pass)
      : pass_(pass),
        batch_(pass.q.dim(0)),
        heads_(pass.q.dim(1)),
        q_tokens_(pass.q.dim(2)),
        kv_tokens_(pass.k.dim(2)),
        head_dim_(pass.q.dim(3)),
        v_dim_(pass.v.dim(3)),
        group_(heads_ / pass.k.dim(1)),
        scale_(static_cast<T>(pass.scale)),
        q_(dense<T>(pass.q)),
        k_(dense<T>(pass.k)),
        v_(dense<T>(pass.v)),
        dcontext_(dense<T>(pass.dcontext)),
        dlse_(dense<T>(pass.dlse)),
        weights_(pass.mask.visible.size()),
        slopes_(pass.softcap > 0 ? weights_.size() : 0),
        lse_(static_cast<std::size_t>(batch_ * heads_ * q_tokens_)) {
    for_rows([&](dim_t row) { weigh(row); });
  }

  // From here on run() adds up sizes.
  void forget_signs() {
    for (auto* numbers : {&q_, &k_, &v_, &dcontext_, &dlse_}) {
      for (T& x : *numbers) x = std::abs(x);
    }
    scale_ = std::abs(scale_);
    sign_of_delta_ = 1;
  }
  // As if softcap were straight everywhere.
  void forget_slopes() { slopes_.clear(); }
  // And what errors of scores add to them. Uses the gradients of scores that run() found before.
  void add_noise_of_scores() {
    weight_noise_.assign(weights_.size(), T{1});
    dscore_noise_.assign(weights_.size(), T{0});
    const T per_score = roundings(head_dim_, pass_.equal_qk);
    for_rows([&](dim_t row) {
      const T* q = row_of(q_, row, head_dim_);
      T in_delta = 0;
      for_visible(row, [&](dim_t, dim_t pair, dim_t key) {
        const T score = scale_ * dot(q, row_of(k_, key, head_dim_), head_dim_);
        const T noise = per_score * (score + std::abs(lse_[at(row)]));
        weight_noise_[at(pair)] += noise;
        dscore_noise_[at(pair)] = noise * std::abs(dbias_[at(pair)]);
        in_delta += dscore_noise_[at(pair)];
      });
      for_visible(row, [&](dim_t, dim_t pair, dim_t) {
        dscore_noise_[at(pair)] += weights_[at(pair)] * in_delta;
      });
    });
  }

  PlainGradients run() {
    return gradients_by([&](dim_t row) { go_back(row); });
  }

  // What gradients of scores, and what follows from them, lose where delta does.
  PlainGradients run_error_of_delta() {
    return gradients_by([&](dim_t row) {
      const std::vector<T> context = context_of(row);
      const T* dcontext = row_of(dcontext_, row, v_dim_);
      T error = 0;
      for (dim_t d = 0; d < v_dim_; ++d) error += std::abs(dcontext[d] * context[at(d)]);
      for_visible(row, [&](dim_t, dim_t pair, dim_t key) {
        dbias_[at(pair)] = weights_[at(pair)] * error;
        const T dscore = std::abs(scale_ * dbias_[at(pair)] * or_else(slopes_, pair, 1));
        add_sizes(row_of(dq_, row, head_dim_), dscore, row_of(k_, key, head_dim_), head_dim_);
        add_sizes(row_of(dk_, key, head_dim_), dscore, row_of(q_, row, head_dim_), head_dim_);
      });
    });
  }

 private:
  using Numbers = std::vector<T>;
  static std::size_t at(dim_t n) { return static_cast<std::size_t>(n); }
  static T* row_of(Numbers& t, dim_t row, dim_t dim) { return t.data() + row * dim; }
  // Number of key 0 of this row's sequence and key head.
  dim_t first_key(dim_t row) const { return row / q_tokens_ / group_ * kv_tokens_; }

  static T dot(const T* a, const T* b, dim_t dim) {
    T sum = 0;
    for (dim_t d = 0; d < dim; ++d) sum += a[d] * b[d];
    return sum;
  }
  static void add_times(T* to, T factor, const T* from, dim_t dim) {
    for (dim_t d = 0; d < dim; ++d) to[d] += factor * from[d];
  }
  static void add_sizes(T* to, T factor, const T* from, dim_t dim) {
    for (dim_t d = 0; d < dim; ++d) to[d] += factor * std::abs(from[d]);
  }

  // Calls add(row) for every row, which adds what the row gives to each gradient.
  template <typename Add>
  PlainGradients gradients_by(const Add& add) {
    dq_.assign(q_.size(), T{0});
    dk_.assign(k_.size(), T{0});
    dv_.assign(v_.size(), T{0});
    dbias_.assign(weights_.size(), T{0});
    for_rows(add);
    return {stored(dq_, pass_.q.shape()), stored(dk_, pass_.k.shape()),
            stored(dv_, pass_.v.shape()), stored(dbias_, {batch_, heads_, q_tokens_, kv_tokens_})};
  }

  Numbers context_of(dim_t row) {
    Numbers context(at(v_dim_), T{0});
    for_visible(row, [&](dim_t, dim_t pair, dim_t key) {
      add_times(context.data(), dropped(weights_[at(pair)], pair), row_of(v_, key, v_dim_), v_dim_);
    });
    return context;
  }

  // weights = exp(scores − lse)
  void weigh(dim_t row) {
    T* weights = row_of(weights_, row, kv_tokens_);
    T top = -std::numeric_limits<T>::infinity();
    for (dim_t j = 0; j < kv_tokens_; ++j) {
      const dim_t pair = row * kv_tokens_ + j;
      weights[j] = -std::numeric_limits<T>::infinity();
      if (!pass_.mask.visible[at(pair)]) continue;
      T score =
          dot(row_of(q_, row, head_dim_), row_of(k_, first_key(row) + j, head_dim_), head_dim_) *
          static_cast<T>(pass_.scale);
      if (pass_.softcap > 0) {
        const T tanh = std::tanh(score / static_cast<T>(pass_.softcap));
        slopes_[at(pair)] = 1 - tanh * tanh;
        score = static_cast<T>(pass_.softcap) * tanh;
      }
      weights[j] = score + static_cast<T>(pass_.mask.added[at(pair)]);
      top = std::max(top, weights[j]);
    }
    T sum = 0;
    for (dim_t j = 0; j < kv_tokens_; ++j) {
      sum += std::isinf(top) ? T{0} : std::exp(weights[j] - top);
    }
    lse_[at(row)] = sum > 0 ? top + std::log(sum) : T{0};
    for (dim_t j = 0; j < kv_tokens_; ++j)
      weights[j] = sum > 0 ? std::exp(weights[j] - lse_[at(row)]) : T{0};
  }

  // A chain of n additions in units of 2⁻²² of its height: n roundings of at most 2⁻²⁵ each.
  static T roundings(dim_t n, bool all_alike) {
    return (all_alike ? static_cast<T>(n) : std::sqrt(static_cast<T>(n))) / 8;
  }

  // What dropout makes of a weight, and of its gradient.
  T dropped(T x, dim_t pair) const {
    if (pass_.dropout == 0.0) return x;
    return pass_.kept[at(pair)] ? x * static_cast<T>(1.0 / (1.0 - pass_.dropout)) : T{0};
  }

  void go_back(dim_t row) {
    const T* dcontext = row_of(dcontext_, row, v_dim_);
    const T* weights = row_of(weights_, row, kv_tokens_);
    T* dscores = row_of(dbias_, row, kv_tokens_);  // dweights first
    const Numbers context = context_of(row);
    for_visible(row, [&](dim_t j, dim_t pair, dim_t key) {
      const T weight = dropped(weights[j], pair);
      add_times(row_of(dv_, key, v_dim_), weight * or_else(weight_noise_, pair, 1), dcontext,
                v_dim_);
      dscores[j] = dropped(dot(dcontext, row_of(v_, key, v_dim_), v_dim_), pair);
    });
    const T delta = dot(dcontext, context.data(), v_dim_);
    const T dlse = or_else(dlse_, row, 0);
    for_visible(row, [&](dim_t j, dim_t pair, dim_t key) {
      dscores[j] = weights[j] * (dscores[j] + sign_of_delta_ * delta + dlse) +
                   or_else(dscore_noise_, pair, 0);
      const T dscore = scale_ * dscores[j] * or_else(slopes_, pair, 1);
      add_times(row_of(dq_, row, head_dim_), dscore, row_of(k_, key, head_dim_), head_dim_);
      add_times(row_of(dk_, key, head_dim_), dscore, row_of(q_, row, head_dim_), head_dim_);
    });
  }

  // A number of a vector that may be empty.
  static T or_else(const Numbers& numbers, dim_t n, T otherwise) {
    return numbers.empty() ? otherwise : numbers[at(n)];
  }

  template <typename F>
  void for_rows(const F& f) const {
    for (dim_t row = 0; row < batch_ * heads_ * q_tokens_; ++row) f(row);
  }
  template <typename F>
  void for_visible(dim_t row, const F& f) const {
    for (dim_t j = 0; j < kv_tokens_; ++j) {
      const dim_t pair = row * kv_tokens_ + j;
      if (pass_.mask.visible[at(pair)]) f(j, pair, first_key(row) + j);
    }
  }

  const PlainPass& pass_;
  dim_t batch_, heads_, q_tokens_, kv_tokens_, head_dim_, v_dim_;
  dim_t group_;
  T scale_;
  Numbers q_, k_, v_, dcontext_, dlse_;
  Numbers weights_, slopes_;             // [batch, num_heads, q_tokens, kv_tokens]
  Numbers lse_;                          // [batch, num_heads, q_tokens]
  Numbers weight_noise_, dscore_noise_;  // of every pair; empty: gradients are wanted
  Numbers dq_, dk_, dv_, dbias_;
  T sign_of_delta_ = -1;
};

}  // namespace

std::vector<bool> kept_pairs(const MaskExtent& e, const MaskSpec& mask, const AttendOptions& o) {
  std::vector<bool> kept;
  const auto word = [](dim_t n) { return static_cast<std::uint32_t>(n); };
  for (dim_t b = 0; b < e.batch; ++b) {
    for (dim_t h = 0; h < e.num_heads; ++h) {
      for (dim_t i = 0; i < e.q_tokens; ++i) {
        for (dim_t j = 0; j < e.kv_tokens; ++j) {
          const auto words =
              philox(o.seed, {word(j / 4), word(mask.position(b, i)), word(h), word(b)});
          kept.push_back(words[static_cast<std::size_t>(j % 4)] >= o.dropout * 0x1p32);
        }
      }
    }
  }
  return kept;
}

template <typename T>
PlainGradients plain_backward(const PlainPass& pass) {
  return PlainBackward<T>(pass).run();
}

PlainGradients gradient_sizes(const PlainPass& pass) {
  PlainBackward<double> backward(pass);
  backward.forget_signs();
  return backward.run();
}

PlainGradients gradient_noise(const PlainPass& pass) {
  PlainBackward<double> backward(pass);
  backward.run();
  backward.forget_signs();
  backward.add_noise_of_scores();
  return backward.run();
}

PlainGradients softcap_noise(const PlainPass& pass) {
  PlainBackward<double> backward(pass);
  backward.forget_signs();
  backward.forget_slopes();
  return backward.run();
}

PlainGradients context_noise(const PlainPass& pass) {
  return PlainBackward<double>(pass).run_error_of_delta();
}

template <typename T>
Tensor plain_sum_to(const TensorView& pairs, const Shape& shape) {
  const std::vector<T> numbers = dense<T>(pairs);
  std::vector<T> sums(static_cast<std::size_t>(numel(shape)));
  for (std::size_t n = 0; n < numbers.size(); ++n) {
    dim_t rest = static_cast<dim_t>(n), to = 0, step = 1;
    for (int axis = 3; axis >= 0; --axis) {
      if (shape[axis] > 1) to += rest % pairs.dim(axis) * step;
      rest /= pairs.dim(axis);
      step *= shape[axis];
    }
    sums[static_cast<std::size_t>(to)] += numbers[n];
  }
  return stored(sums, shape);
}

template PlainGradients plain_backward<float>(const PlainPass&);
template PlainGradients plain_backward<double>(const PlainPass&);
template PlainGradients plain_backward<long double>(const PlainPass&);
template Tensor plain_sum_to<float>(const TensorView&, const Shape&);
template Tensor plain_sum_to<double>(const TensorView&, const Shape&);
template Tensor plain_sum_to<long double>(const TensorView&, const Shape&);

}  // namespace cephalo::testing
