#include "cephalo/view/head_trace.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "cephalo/core/fail.h"
#include "cephalo/core/ops.h"

namespace cephalo {
namespace {

void check(const LookModel& model, const std::vector<std::string>& texts,
           const HeadTraceOptions& o) {
  const GptOptions& m = model.gpt.options();
  require(!texts.empty(), "trace: there is no text");
  require(0 <= o.layer && o.layer < m.num_layers && 0 <= o.head && o.head < m.num_heads,
          "trace: there is no layer {} head {}; the model has {} layers of {} heads", o.layer,
          o.head, m.num_layers, m.num_heads);
  require(0 <= o.sequence && o.sequence < std::ssize(texts),
          "trace: sequence {} is not in [0, {}): so many texts are given", o.sequence,
          texts.size());
}

// -> [batch, longest], int64; shorter rows end in `padding`
Tensor rectangle(const std::vector<std::vector<std::int64_t>>& rows, std::int64_t padding) {
  std::size_t longest = 0;
  for (const auto& row : rows) longest = std::max(longest, row.size());
  Tensor ids = Tensor::empty({std::ssize(rows), static_cast<dim_t>(longest)}, DType::i64);
  auto* to = ids.mutable_data_as<std::int64_t>();
  for (const auto& row : rows) {
    to = std::copy(row.begin(), row.end(), to);
    to = std::fill_n(to, longest - row.size(), padding);
  }
  return ids;
}

// t: [batch, heads, tokens, width] -> the first `count` tokens of a sequence and head, float64
Tensor rows_of(const TensorView& t, dim_t sequence, dim_t head, dim_t count) {
  return Tensor::copy(t[sequence][head].slice(0, 0, count), DType::f64);
}

double dot(const double* a, const double* b, dim_t count) {
  return std::inner_product(a, a + count, b, 0.0);
}

double norm(const Tensor& t) {
  const auto* numbers = t.data_as<double>();
  return std::sqrt(dot(numbers, numbers, t.numel()));
}

// One query of one head: from q, k and v to its context.
struct Row {
  Tensor q;        // [1, head_dim]
  Tensor k;        // [keys, head_dim]
  Tensor v;        // [keys, v_dim]
  Tensor context;  // [1, v_dim]
  std::vector<double> products, scores, weights;
};

// heads: of the whole batch; head: of num_heads, neighbours of which may share keys and values
Row row_of(const PassHeads& heads, dim_t sequence, dim_t head, dim_t token, double scale) {
  const dim_t sharing = heads.q.dim(1) / heads.k.dim(1);
  const dim_t keys = token + 1;
  Row row;
  row.q = Tensor::copy(heads.q[sequence][head].slice(0, token, keys), DType::f64);
  row.k = rows_of(heads.k, sequence, head / sharing, keys);
  row.v = rows_of(heads.v, sequence, head / sharing, keys);
  const dim_t width = row.k.dim(1);
  for (dim_t j = 0; j < keys; ++j) {
    row.products.push_back(
        dot(row.q.data_as<double>(), row.k.data_as<double>() + j * width, width));
    row.scores.push_back(row.products.back() * scale);
  }
  row.weights.resize(row.scores.size());
  softmax_row(row.scores.data(), keys, row.weights.data());
  row.context = matmul(TensorView(row.weights.data(), {1, keys}), row.v);
  return row;
}

// rows: [count, v_dim] -> [count, d_model], through the columns of out_proj that belong to a head
Tensor through_projection(const MultiHeadAttention& layer, dim_t head, const TensorView& rows) {
  const dim_t v_dim = rows.dim(1);
  const TensorView out = layer.parameter("out_proj.weight");
  return linear(rows, Tensor::copy(out.slice(1, head * v_dim, (head + 1) * v_dim), DType::f64));
}

void trace_keys(const Row& row, const MultiHeadAttention& layer, HeadTrace& trace) {
  const Tensor moved = through_projection(layer, trace.head, row.v);
  const dim_t width = moved.dim(1);
  for (std::size_t j = 0; j < row.weights.size(); ++j) {
    const double* added = moved.data_as<double>() + static_cast<dim_t>(j) * width;
    trace.keys.push_back({row.products[j], row.scores[j], row.weights[j],
                          row.weights[j] * std::sqrt(dot(added, added, width))});
  }
}

void trace_shares(const PassHeads& heads, const MultiHeadAttention& layer, HeadTrace& trace) {
  Tensor sum = Tensor::full({1, layer.options().d_out}, 0.0, DType::f64);
  for (dim_t h = 0; h < trace.num_heads; ++h) {
    const Row row = row_of(heads, trace.sequence, h, trace.token, trace.scale);
    const Tensor added = through_projection(layer, h, row.context);
    trace.head_norms.push_back(norm(added));
    sum = add(sum, added);
  }
  trace.added_norm = norm(sum);
  if (layer.options().out_bias) {
    trace.bias_norm = norm(Tensor::copy(layer.parameter("out_proj.bias"), DType::f64));
  }
}

}  // namespace

dim_t HeadTrace::padded_to() const {
  dim_t longest = 0;
  for (const TracedSequence& one : batch) longest = std::max(longest, one.tokens);
  return longest;
}

std::vector<double> HeadTrace::shares() const {
  const double sum = std::accumulate(head_norms.begin(), head_norms.end(), 0.0);
  std::vector<double> shares;
  for (const double norm : head_norms) {
    if (sum > 0.0) shares.push_back(norm / sum);
  }
  return shares;
}

std::vector<dim_t> HeadTrace::strongest() const {
  std::vector<dim_t> order(keys.size());
  std::iota(order.begin(), order.end(), dim_t{0});
  std::stable_sort(order.begin(), order.end(), [&](dim_t a, dim_t b) {
    return keys[static_cast<std::size_t>(a)].weight > keys[static_cast<std::size_t>(b)].weight;
  });
  return order;
}

std::vector<dim_t> HeadTrace::strongest_values() const {
  const auto* numbers = context.data_as<double>();
  std::vector<dim_t> order(static_cast<std::size_t>(context.numel()));
  std::iota(order.begin(), order.end(), dim_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](dim_t a, dim_t b) { return std::abs(numbers[a]) > std::abs(numbers[b]); });
  return order;
}

HeadTrace trace_head(const LookModel& model, const std::vector<std::string>& texts,
                     const HeadTraceOptions& options) {
  check(model, texts, options);
  HeadTrace trace;
  trace.model = model.name;
  trace.num_layers = model.gpt.options().num_layers;
  trace.num_heads = model.gpt.options().num_heads;
  trace.layer = options.layer;
  trace.head = options.head;
  trace.sequence = options.sequence;
  trace.begun = options.begin && model.first_token.has_value();
  trace.padding_id = model.first_token.value_or(0);

  std::vector<std::vector<std::int64_t>> ids;
  for (const std::string& text : texts) {
    ids.push_back(look_ids(model, text, options.begin, "trace"));
    trace.batch.push_back({text, std::ssize(ids.back())});
  }
  const auto shown = static_cast<std::size_t>(options.sequence);
  trace.text = texts[shown];
  trace.tokens = look_tokens(model, ids[shown]);
  const dim_t tokens = std::ssize(ids[shown]);
  trace.trained_context_length = goes_beyond_training(model, tokens);
  trace.token = options.token.value_or(tokens - 1);
  require(0 <= trace.token && trace.token < tokens,
          "trace: there is no token {}; the text has {}, from 0 to {}", trace.token, tokens,
          tokens - 1);

  std::vector<SavedPass> saved;
  model.gpt(rectangle(ids, trace.padding_id),
            {.last_only = true, .threads = options.threads, .saved = &saved});
  const PassHeads heads = saved[static_cast<std::size_t>(trace.layer)].heads();
  const MultiHeadAttention& layer = model.gpt.attention(trace.layer);
  trace.rotary = layer.options().rotary;
  trace.scale = 1.0 / std::sqrt(static_cast<double>(layer.head_dim()));
  Row row = row_of(heads, trace.sequence, trace.head, trace.token, trace.scale);
  trace_keys(row, layer, trace);
  trace_shares(heads, layer, trace);
  trace.q = std::move(row.q).reshaped({layer.head_dim()});
  trace.k = std::move(row.k);
  const dim_t v_dim = row.v.dim(1);
  trace.v = std::move(row.v);
  trace.context = std::move(row.context).reshaped({v_dim});
  return trace;
}

}  // namespace cephalo
