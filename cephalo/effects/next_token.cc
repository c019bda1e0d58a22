#include "cephalo/effects/next_token.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace cephalo {

NextToken::NextToken(const TensorView& logits) {
  const Tensor wide = Tensor::copy(logits, DType::f64);
  const auto* data = wide.data_as<double>();
  logits_.assign(data, data + wide.numel());
  const double largest = *std::max_element(logits_.begin(), logits_.end());
  double sum = 0.0;
  double weighted = 0.0;
  for (const double logit : logits_) {
    const double share = std::exp(logit - largest);
    sum += share;
    if (share > 0.0) weighted += share * (logit - largest);
  }
  log_sum_ = largest + std::log(sum);
  entropy_ = std::log(sum) - weighted / sum;
}

double NextToken::probability(std::int64_t id) const {
  return std::exp(logit(id) - log_sum_);
}

bool NextToken::before(std::int64_t a, std::int64_t b) const {
  return logit(a) != logit(b) ? logit(a) > logit(b) : a < b;
}

dim_t NextToken::rank(std::int64_t id) const {
  dim_t better = 0;
  for (std::int64_t other = 0; other < std::ssize(logits_); ++other) better += before(other, id);
  return better;
}

std::vector<TokenProbability> NextToken::top(dim_t count) const {
  std::vector<std::int64_t> order(logits_.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const auto end = order.begin() + std::clamp<dim_t>(count, 0, std::ssize(order));
  std::partial_sort(order.begin(), end, order.end(),
                    [&](std::int64_t a, std::int64_t b) { return before(a, b); });
  std::vector<TokenProbability> found;
  for (auto id = order.begin(); id != end; ++id) found.push_back({*id, probability(*id)});
  return found;
}

std::int64_t NextToken::likeliest() const {
  return std::distance(logits_.begin(), std::max_element(logits_.begin(), logits_.end()));
}

double NextToken::divergence_to(const NextToken& other) const {
  double sum = 0.0;
  for (std::size_t id = 0; id < logits_.size(); ++id) {
    const double here = logits_[id] - log_sum_;
    const double there = other.logits_[id] - other.log_sum_;
    const double share = std::exp(here);
    if (share > 0.0) sum += share * (here - there);
  }
  return std::max(sum, 0.0);  // which rounding may leave
}

}  // namespace cephalo
