#include "tests/support/plain_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/support/dense.h"

namespace cephalo::testing {

template <typename T>
PlainResult plain_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                            const MaskTable& mask, double scale, double softcap) {
  const dim_t batch = q.dim(0), heads = q.dim(1), q_tokens = q.dim(2), head_dim = q.dim(3);
  const dim_t kv_heads = k.dim(1), kv_tokens = k.dim(2), v_dim = v.dim(3);
  const std::vector<T> qs = dense<T>(q), ks = dense<T>(k), vs = dense<T>(v);
  using S = Stored<T>;
  PlainResult result{Tensor::zeros({batch, heads, q_tokens, v_dim}, DTypeOf<S>::value),
                     Tensor::zeros({batch, heads, q_tokens, kv_tokens}, DTypeOf<S>::value),
                     Tensor::zeros({batch, heads, q_tokens}, DTypeOf<S>::value)};
  S* contexts = result.context.template mutable_data_as<S>();
  S* weights = result.weights.template mutable_data_as<S>();
  S* lses = result.lse.template mutable_data_as<S>();
  std::vector<T> scores(static_cast<std::size_t>(kv_tokens));
  std::vector<T> context(static_cast<std::size_t>(v_dim));
  for (dim_t b = 0; b < batch; ++b) {
    for (dim_t h = 0; h < heads; ++h) {
      const dim_t kv = b * kv_heads + h / (heads / kv_heads);
      for (dim_t i = 0; i < q_tokens; ++i) {
        const dim_t row = (b * heads + h) * q_tokens + i;
        const auto pair = [&](dim_t j) { return static_cast<std::size_t>(row * kv_tokens + j); };
        T top = -std::numeric_limits<T>::infinity();
        for (dim_t j = 0; j < kv_tokens; ++j) {
          T& score = scores[static_cast<std::size_t>(j)];
          score = -std::numeric_limits<T>::infinity();
          if (!mask.visible[pair(j)]) continue;
          T sum = 0;
          for (dim_t d = 0; d < head_dim; ++d) {
            sum += qs[static_cast<std::size_t>(row * head_dim + d)] *
                   ks[static_cast<std::size_t>((kv * kv_tokens + j) * head_dim + d)];
          }
          score = sum * static_cast<T>(scale);
          if (softcap > 0) {
            score = static_cast<T>(softcap) * std::tanh(score / static_cast<T>(softcap));
          }
          score += static_cast<T>(mask.added[pair(j)]);
          top = std::max(top, score);
        }
        T sum = 0;
        for (T& score : scores) {
          const T weight = std::isinf(top) ? T{0} : std::exp(score - top);
          score = weight;
          sum += weight;
        }
        lses[row] = static_cast<S>(std::isinf(top) ? top : top + std::log(sum));
        std::fill(context.begin(), context.end(), T{0});
        for (dim_t j = 0; j < kv_tokens && sum > 0; ++j) {
          const T weight = scores[static_cast<std::size_t>(j)] / sum;
          weights[row * kv_tokens + j] = static_cast<S>(weight);
          if (!mask.visible[pair(j)]) continue;
          for (dim_t d = 0; d < v_dim; ++d) {
            context[static_cast<std::size_t>(d)] +=
                weight * vs[static_cast<std::size_t>((kv * kv_tokens + j) * v_dim + d)];
          }
        }
        for (dim_t d = 0; d < v_dim; ++d) {
          contexts[row * v_dim + d] = static_cast<S>(context[static_cast<std::size_t>(d)]);
        }
      }
    }
  }
  return result;
}

template PlainResult plain_attention<float>(const TensorView&, const TensorView&, const TensorView&,
                                            const MaskTable&, double, double);
template PlainResult plain_attention<double>(const TensorView&, const TensorView&,
                                             const TensorView&, const MaskTable&, double, double);

template PlainResult plain_attention<long double>(const TensorView&, const TensorView&,
                                                  const TensorView&, const MaskTable&, double,
                                                  double);

}  // namespace cephalo::testing
