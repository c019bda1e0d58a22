#include "cephalo/effects/attribution.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <vector>

#include "cephalo/core/fail.h"
#include "cephalo/core/parallel.h"
#include "cephalo/model/model_steps.h"

namespace cephalo {
namespace {

using Wide = std::vector<double>;

// row: [width], any floating type
Wide wide(const TensorView& row) {
  const Tensor copy = Tensor::copy(row, DType::f64);
  const auto* data = copy.data_as<double>();
  return {data, data + copy.numel()};
}

double dot(std::span<const double> a, std::span<const double> b) {
  return std::transform_reduce(a.begin(), a.end(), b.begin(), 0.0);
}

double mean(const Wide& x) {
  return std::reduce(x.begin(), x.end()) / static_cast<double>(x.size());
}

dim_t checked_position(const KeptPass& text, dim_t position) {
  const dim_t place = position == -1 ? text.tokens() - 1 : position;
  require(0 <= place && place < text.tokens(), "attribution: position {} is not in [0, {})",
          position, text.tokens());
  return place;
}

// √(variance + epsilon) of x: [d_model], as the last norm had it
double norm_scale(const Wide& x, double epsilon) {
  const double middle = mean(x);
  double squares = 0.0;
  for (const double value : x) squares += (value - middle) * (value - middle);
  return std::sqrt(squares / static_cast<double>(x.size()) + epsilon);
}

// A logit as a linear function of what is added to the residual stream: c · direction + bias.
struct LogitMap {
  Wide direction;  // [d_model]
  double bias;
};

LogitMap logit_map(const KeptPass& text, dim_t position, std::int64_t token) {
  const GptOptions& o = text.options();
  require(0 <= token && token < o.vocab_size, "attribution: token {} is not in [0, {})", token,
          o.vocab_size);
  const ModelSteps& steps = *text.steps();
  const Wide unembed = wide(steps.head_weight()[token]);
  Wide direction = wide(steps.last_norm_weight());
  std::transform(direction.begin(), direction.end(), unembed.begin(), direction.begin(),
                 std::multiplies<>());
  // (c − mean c) · w = c · (w − mean w)
  const double middle = mean(direction);
  const double scale = norm_scale(wide(text.resid_post()[position]), o.norm_epsilon);
  for (double& value : direction) value = (value - middle) / scale;
  return {std::move(direction), dot(wide(steps.last_norm_bias()), unembed)};
}

// The same map before the output projection of a layer -> [d_model], heads merged
Wide through_out(const ModelSteps& steps, dim_t layer, const Wide& direction) {
  const Tensor weight = Tensor::copy(steps.out_weight(layer), DType::f64);  // [out, heads merged]
  const auto width = static_cast<std::size_t>(weight.dim(1));
  const auto* row = weight.data_as<double>();
  Wide found(width, 0.0);
  for (const double factor : direction) {
    for (std::size_t c = 0; c < width; ++c) found[c] += factor * row[c];
    row += width;
  }
  return found;
}

// row: [heads merged] -> the columns of one head
std::span<const double> columns(const Wide& row, dim_t head, dim_t head_dim) {
  return std::span(row).subspan(static_cast<std::size_t>(head * head_dim),
                                static_cast<std::size_t>(head_dim));
}

// The model's own, of the residual as it is.
double own_logit(const KeptPass& text, dim_t position, std::int64_t token) {
  const GptOptions& o = text.options();
  Tensor row = Tensor::copy(text.resid_post().slice(0, position, position + 1));
  Tensor logits = Tensor::empty({1, o.vocab_size}, o.dtype);
  text.steps()->last_norm({.x = row, .y = row});
  text.steps()->logits(row, logits);
  return logits.at({0, token});
}

// What enters layer 0 -> token_embedding and position_embedding
void attribute_embeddings(const KeptPass& text, const LogitMap& map, Attribution& found) {
  const GptOptions& o = text.options();
  const ModelSteps& steps = *text.steps();
  Tensor token = Tensor::empty({1, o.d_model}, o.dtype);
  Tensor place = steps.has_position_embedding() ? Tensor::empty({1, o.d_model}, o.dtype) : Tensor();
  const auto at = static_cast<std::size_t>(found.position);
  steps.embed_apart(TensorView(&text.ids()[at], {1, 1}), found.position, token, place);
  found.token_embedding = dot(wide(token), map.direction);
  if (steps.has_position_embedding()) found.position_embedding = dot(wide(place), map.direction);
}

// A head's columns of the rows that its layer projects to: [tokens, head_dim] each.
struct HeadColumns {
  TensorView q, k, v;
};

HeadColumns head_columns(const KeptPass& text, dim_t layer, dim_t head) {
  const GptOptions& o = text.options();
  const dim_t kv_head = head / (o.num_heads / o.num_kv_heads);
  const auto from = [&](dim_t begin, dim_t h) {
    const dim_t first = begin + h * o.head_dim();
    return text.layer(layer).qkv.slice(1, first, first + o.head_dim());
  };
  return {from(0, head), from(o.d_model, kv_head), from(o.d_model + o.kv_width(), kv_head)};
}

// q: [head_dim], k: [keys, head_dim], as the run had them -> softmax(q · k / √head_dim) in float64
Wide row_weights(const Wide& q, const TensorView& k) {
  const double scale = 1.0 / std::sqrt(static_cast<double>(q.size()));
  Wide row;
  for (dim_t j = 0; j < k.dim(0); ++j) row.push_back(scale * dot(q, wide(k[j])));
  const double largest = *std::max_element(row.begin(), row.end());
  for (double& value : row) value = std::exp(value - largest);
  const double sum = std::reduce(row.begin(), row.end());
  for (double& value : row) value /= sum;
  return row;
}

}  // namespace

double Attribution::sum() const {
  const auto total = [](const Tensor& t) {
    const auto* data = t.data_as<double>();
    return std::accumulate(data, data + t.numel(), 0.0);
  };
  return token_embedding + position_embedding + total(heads) + total(out_bias) + total(mlp) + bias;
}

Attribution attribute_logit(const KeptPass& text, dim_t position, std::int64_t token) {
  const GptOptions& o = text.options();
  const UseThreads limit(text.threads());
  const dim_t place = checked_position(text, position);
  const LogitMap map = logit_map(text, place, token);
  Attribution found{.position = place,
                    .token = token,
                    .logit = own_logit(text, place, token),
                    .heads = Tensor::empty({o.num_layers, o.num_heads}, DType::f64),
                    .out_bias = Tensor::empty({o.num_layers}, DType::f64),
                    .mlp = Tensor::empty({o.num_layers}, DType::f64),
                    .bias = map.bias};
  attribute_embeddings(text, map, found);
  for (dim_t layer = 0; layer < o.num_layers; ++layer) {
    const KeptPass::Layer& kept = text.layer(layer);
    const Wide before_out = through_out(*text.steps(), layer, map.direction);
    const Wide context = wide(kept.context[place]);
    for (dim_t h = 0; h < o.num_heads; ++h) {
      found.heads.set({layer, h},
                      dot(columns(context, h, o.head_dim()), columns(before_out, h, o.head_dim())));
    }
    found.out_bias.set({layer}, dot(wide(text.steps()->out_bias(layer)), map.direction));
    // What the MLP added is what the stream grew by: so nothing is lost to its rounding.
    const bool last = layer + 1 == o.num_layers;
    const Tensor& after = last ? text.resid_post() : text.layer(layer + 1).resid_pre;
    found.mlp.set({layer}, dot(wide(after[place]), map.direction) -
                               dot(wide(kept.resid_mid[place]), map.direction));
  }
  return found;
}

Tensor attribute_sources(const KeptPass& text, dim_t layer, dim_t head, dim_t position,
                         std::int64_t token) {
  const GptOptions& o = text.options();
  require(0 <= layer && layer < o.num_layers, "attribution: layer {} is not in [0, {})", layer,
          o.num_layers);
  require(0 <= head && head < o.num_heads, "attribution: head {} is not in [0, {})", head,
          o.num_heads);
  const dim_t place = checked_position(text, position);
  const LogitMap map = logit_map(text, place, token);
  const Wide before_out = through_out(*text.steps(), layer, map.direction);
  const HeadColumns kept = head_columns(text, layer, head);
  const Wide weights = row_weights(wide(kept.q[place]), kept.k.slice(0, 0, place + 1));
  Tensor found = Tensor::empty({place + 1}, DType::f64);
  for (dim_t j = 0; j <= place; ++j) {
    const double pull = dot(wide(kept.v[j]), columns(before_out, head, o.head_dim()));
    found.set({j}, weights[static_cast<std::size_t>(j)] * pull);
  }
  return found;
}

}  // namespace cephalo
