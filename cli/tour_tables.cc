#include "cli/tour_tables.h"

#include <algorithm>
#include <cmath>

#include "cephalo/core/error.h"
#include "cephalo/core/format.h"
#include "cephalo/core/print.h"
#include "cephalo/core/random.h"
#include "cephalo/core/views.h"
#include "cephalo/learn/ladder.h"
#include "cephalo/text/words.h"
#include "cli/journey.h"

namespace cephalo::cli {
namespace {

// a, b: [tokens, width], over the first `tokens` rows
double largest_difference(const TensorView& a, const TensorView& b, dim_t tokens) {
  double largest = 0.0;
  for (dim_t i = 0; i < tokens; ++i) {
    for (dim_t d = 0; d < a.dim(1); ++d) {
      largest = std::max(largest, std::abs(a.at({i, d}) - b.at({i, d})));
    }
  }
  return largest;
}

// What softmax leaves to learn from, as the mean over rows.
struct Softness {
  double largest = 0.0;  // weight of a row
  double slope = 0.0;    // 1 − Σ w²
};

// weights: [queries, keys]. A weight follows its own score by the slope w(1 − w); over a row these
// sum to 1 − Σ w², which is 0 where one key has all the weight.
Softness softness_of(const TensorView& weights) {
  const dim_t rows = weights.dim(0);
  Softness mean;
  for (dim_t i = 0; i < rows; ++i) {
    double top = 0.0;
    double squares = 0.0;
    for (dim_t j = 0; j < weights.dim(1); ++j) {
      const double w = weights.at({i, j});
      top = std::max(top, w);
      squares += w * w;
    }
    mean.largest += top / static_cast<double>(rows);
    mean.slope += (1.0 - squares) / static_cast<double>(rows);
  }
  return mean;
}

}  // namespace

// The tensor operations on twelve numbers.
std::string tour_strides() {
  const Tensor t = Tensor::of({{0, 1, 2, 3, 4, 5}, {6, 7, 8, 9, 10, 11}});
  const auto line = [](const char* what, const TensorView& v) {
    const std::string walk = to_string(v.strides());
    return format_text("{:<22} shape {:<10} strides {}\n", what, to_string(v.shape()),
                       v.is_contiguous() ? format_text("{:<10} in reading order", walk) : walk);
  };
  const TensorView split_view = view(t, {2, 3, 2});
  const TensorView turned = transpose(split_view, 0, 1);
  std::string out = line("t", t) + line("view(t, {2, 3, 2})", split_view) +
                    line("transpose(that, 0, 1)", turned) +
                    line("contiguous(that)", contiguous(turned).view());
  try {
    view(turned, {6, 2});
  } catch (const Error& error) {
    out += format_text("view(transposed, {{6, 2}}) says:\n  {}\n", error.what());
  }
  return out;
}

// One query of rung 2, number by number.
std::string tour_matrices() {
  SelfAttention layer({.d_in = 3, .d_out = 2, .seed = 789});
  const Trace trace = layer.trace(journey());
  std::string out = format_text("the query of \"journey\" is x[1] W_query: {}\n",
                                to_string(trace.at("q").value[1]));
  out +=
      format_text("{:<8} {:>18} {:>8} {:>8} {:>18}\n", "token", "key", "q . k", "weight", "value");
  dim_t j = 0;
  for (const std::string& word : split_words(kJourney)) {
    out += format_text("{:<8} {:>18} {:>8.4f} {:>8.4f} {:>18}\n", word,
                       to_string(trace.at("k").value[j]), trace.at("scores").value.at({1, j}),
                       trace.at("weights").value.at({1, j}), to_string(trace.at("v").value[j]));
    ++j;
  }
  return out + format_text("the mean of the values by these weights is {}\n",
                           to_string(trace.at("context").value[1]));
}

// 64 random queries over 64 random keys, with and without the division.
std::string tour_scale() {
  std::string out =
      format_text("{:>8} | {:<19} | {:<19}\n", "", "largest weight", "slope left, 1 - sum w^2");
  out += format_text("{:>8} | {:>9} {:>9} | {:>9} {:>9}\n", "head_dim", "unscaled", "scaled",
                     "unscaled", "scaled");
  for (const dim_t head_dim : {4, 16, 64, 256}) {
    TorchGenerator generator(123);
    const Tensor q = generator.randn({64, head_dim});
    const Tensor k = generator.randn({64, head_dim});
    const Softness unscaled =
        softness_of(attend(q, k, k, {}, {.scale = 1.0, .return_weights = true}).weights);
    const Softness scaled = softness_of(attend(q, k, k, {}, {.return_weights = true}).weights);
    out += format_text("{:>8} | {:>9.3f} {:>9.3f} | {:>9.3f} {:>9.3f}\n", head_dim,
                       unscaled.largest, scaled.largest, unscaled.slope, scaled.slope);
  }
  return out;
}

// Change the last token, look at the five before it.
std::string tour_mask() {
  std::string out =
      format_text("{:<16} {}\n", "mask", "change of tokens 0 to 4 when token 5 changes");
  for (const bool hides : {false, true}) {
    MultiHeadAttention layer({.d_in = 3, .d_out = 4, .num_heads = 2, .causal = hides, .seed = 123});
    layer.eval();
    Tensor x = journey();
    const Tensor before = layer(x);
    x.set({5, 0}, 9.0);
    const Tensor after = layer(x);
    out += format_text("{:<16} {:.4f}\n", hides ? "causal" : "none",
                       largest_difference(before, after, 5));
  }
  return out + "\n" + (causal() & window(2, 0)).draw(6, 6);
}

// One matrix of weights is one mean; more heads are more means at once.
std::string tour_heads() {
  std::string out = format_text("{:>5} {:>8} {:>10} {}\n", "heads", "head_dim", "parameters",
                                "different weights for token 5 over 8 tokens");
  const Tensor x = TorchGenerator(7).randn({1, 8, 64});
  for (const dim_t num_heads : {1, 2, 4, 8}) {
    MultiHeadAttention layer({.d_in = 64, .d_out = 64, .num_heads = num_heads, .seed = 123});
    layer.eval();
    const Trace trace = layer.trace(x);
    std::string tops;
    for (dim_t h = 0; h < num_heads; ++h) {
      const TensorView row = trace.at("weights").value[0][h][5];
      dim_t best = 0;
      for (dim_t j = 1; j < 6; ++j) best = row.at({j}) > row.at({best}) ? j : best;
      tops += format_text("{}{}", h > 0 ? ", " : "", best);
    }
    out += format_text("{:>5} {:>8} {:>10} most to token {}\n", num_heads, 64 / num_heads,
                       layer.parameter_count(), tops);
  }
  return out;
}

// What is counted, what is not.
std::string tour_buffers() {
  std::string out = format_text("{:<12} {:>12} {:>16} {:>18}\n", "preset", "parameters",
                                "context_length", "mask if stored");
  for (const std::string& name : preset_names()) {
    const MultiHeadAttentionOptions o = preset(name);
    out += format_text("{:<12} {:>12} {:>16} {:>12} bytes\n", name, parameter_count(o),
                       o.context_length, 4 * o.context_length * o.context_length);
  }
  return out;
}

}  // namespace cephalo::cli
