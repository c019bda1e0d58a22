#include "cephalo/view/predictions.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace cephalo {

std::vector<Prediction> likeliest(const TensorView& logits, dim_t count) {
  const dim_t vocab_size = logits.dim(0);
  const Tensor wide = Tensor::copy(logits, DType::f64);
  const auto* logit = wide.data_as<double>();
  const double largest = *std::max_element(logit, logit + vocab_size);
  double sum = 0.0;
  for (dim_t id = 0; id < vocab_size; ++id) sum += std::exp(logit[id] - largest);
  std::vector<std::int64_t> order(static_cast<std::size_t>(vocab_size));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const auto end = order.begin() + std::clamp<dim_t>(count, 0, vocab_size);
  std::partial_sort(order.begin(), end, order.end(), [&](std::int64_t a, std::int64_t b) {
    return logit[a] != logit[b] ? logit[a] > logit[b] : a < b;
  });
  std::vector<Prediction> found;
  for (auto id = order.begin(); id != end; ++id) {
    found.push_back({*id, std::exp(logit[*id] - largest) / sum});
  }
  return found;
}

}  // namespace cephalo
