// The measured numbers of docs/tour.md: tour_numbers NAME prints one table.
#include <cephalo/cephalo.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

using namespace cephalo;

namespace {

// Six tokens of the book's sentence with three numbers each.
Tensor journey() {
  return Tensor::of({{0.43, 0.15, 0.89},    // Your
                     {0.55, 0.87, 0.66},    // journey
                     {0.57, 0.85, 0.64},    // starts
                     {0.22, 0.58, 0.33},    // with
                     {0.77, 0.25, 0.10},    // one
                     {0.05, 0.80, 0.55}});  // step
}

// What each matrix does: one query of rung 2, number by number.
void matrices() {
  SelfAttention layer({.d_in = 3, .d_out = 2, .seed = 789});
  const Tensor x = journey();
  const Trace trace = layer.trace(x);
  std::printf("the query of \"journey\" is x[1] W_query: %s\n",
              to_string(trace.at("q").value[1]).c_str());
  std::printf("%-8s %18s %8s %8s %18s\n", "token", "key", "q . k", "weight", "value");
  const char* words[] = {"Your", "journey", "starts", "with", "one", "step"};
  for (dim_t j = 0; j < 6; ++j) {
    std::printf("%-8s %18s %8.4f %8.4f %18s\n", words[j], to_string(trace.at("k").value[j]).c_str(),
                trace.at("scores").value.at({1, j}), trace.at("weights").value.at({1, j}),
                to_string(trace.at("v").value[j]).c_str());
  }
  std::printf("the mean of the values by these weights is %s\n",
              to_string(trace.at("context").value[1]).c_str());
}

// Why divide by sqrt(head_dim): 64 random queries over 64 random keys.
void scale() {
  std::printf("%8s | %-19s | %-19s\n", "", "largest weight", "softmax slope w(1-w)");
  std::printf("%8s | %9s %9s | %9s %9s\n", "head_dim", "unscaled", "scaled", "unscaled", "scaled");
  for (const dim_t head_dim : {4, 16, 64, 256}) {
    TorchGenerator generator(123);
    const Tensor q = generator.randn({64, head_dim});
    const Tensor k = generator.randn({64, head_dim});
    double largest[2] = {};
    double slope[2] = {};
    for (const int scaled : {0, 1}) {
      AttendOptions options{.return_weights = true};
      if (scaled == 0) options.scale = 1.0;
      const Tensor weights = attend(q, k, k, {}, options).weights;
      for (dim_t i = 0; i < 64; ++i) {
        double top = 0.0;
        for (dim_t j = 0; j < 64; ++j) top = std::max(top, weights.at({i, j}));
        largest[scaled] += top / 64.0;
        slope[scaled] += top * (1.0 - top) / 64.0;
      }
    }
    std::printf("%8ld | %9.3f %9.3f | %9.3f %9.3f\n", static_cast<long>(head_dim), largest[0],
                largest[1], slope[0], slope[1]);
  }
}

double largest_difference(const TensorView& a, const TensorView& b, dim_t tokens) {
  double largest = 0.0;
  for (dim_t i = 0; i < tokens; ++i) {
    for (dim_t d = 0; d < a.dim(1); ++d) {
      largest = std::max(largest, std::abs(a.at({i, d}) - b.at({i, d})));
    }
  }
  return largest;
}

// What the mask does: change the last token, look at the five before it.
void mask() {
  std::printf("%-16s %s\n", "mask", "change of tokens 0 to 4 when token 5 changes");
  for (const bool causal : {false, true}) {
    MultiHeadAttention layer(
        {.d_in = 3, .d_out = 4, .num_heads = 2, .causal = causal, .seed = 123});
    layer.eval();
    Tensor x = journey();
    const Tensor before = layer(x);
    x.set({5, 0}, 9.0);
    const Tensor after = layer(x);
    std::printf("%-16s %.4f\n", causal ? "causal" : "none", largest_difference(before, after, 5));
  }
  std::printf("\n%s", (causal() & window(2, 0)).draw(6, 6).c_str());
}

// Why several heads: one matrix of weights is one mean; more heads are more means at once.
void heads() {
  std::printf("%5s %8s %10s %s\n", "heads", "head_dim", "parameters",
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
      tops += (h > 0 ? ", " : "") + std::to_string(best);
    }
    std::printf("%5ld %8ld %10ld most to token %s\n", static_cast<long>(num_heads),
                static_cast<long>(64 / num_heads), static_cast<long>(layer.parameter_count()),
                tops.c_str());
  }
}

// Best of several runs, in milliseconds.
double milliseconds(const std::function<void()>& work) {
  double best = std::numeric_limits<double>::infinity();
  for (int run = 0; run < 5; ++run) {
    const auto start = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double, std::milli> spent =
        std::chrono::steady_clock::now() - start;
    best = std::min(best, spent.count());
  }
  return best;
}

// Why split and transpose: twelve heads one after the other against one projection, split.
void split() {
  const Tensor x = TorchGenerator(7).randn({1, 64, 768});
  std::vector<CausalAttention> separate;
  TorchGenerator generator(123);
  for (int h = 0; h < 12; ++h) {
    separate.emplace_back(CausalAttentionOptions{
        .d_in = 768, .d_out = 64, .context_length = 1024, .generator = &generator});
  }
  MultiHeadAttention together({.d_in = 768, .d_out = 768, .num_heads = 12, .out_proj = false});
  const double loop = milliseconds([&] {
    for (const CausalAttention& head : separate) head(x);
  });
  const double one = milliseconds([&] { together(x); });
  std::printf("%-44s %6s  %s\n", "12 heads of 64 on 64 tokens of 768", "calls", "time");
  std::printf("%-44s %6d  %.1f ms\n", "rung 4: a list of heads", 12, loop);
  std::printf("%-44s %6d  %.1f ms\n", "rung 5: one projection, split, transposed", 1, one);
}

// Buffer or parameter: what is counted, what is not.
void buffers() {
  std::printf("%-12s %12s %16s %18s\n", "preset", "parameters", "context_length", "mask if stored");
  for (const std::string& name : preset_names()) {
    const MultiHeadAttentionOptions o = preset(name);
    std::printf("%-12s %12ld %16ld %12ld bytes\n", name.c_str(),
                static_cast<long>(parameter_count(o)), static_cast<long>(o.context_length),
                static_cast<long>(4 * o.context_length * o.context_length));
  }
}

// The tensor operations on twelve numbers, with their strides.
void strides() {
  const Tensor t = Tensor::of({{0, 1, 2, 3, 4, 5}, {6, 7, 8, 9, 10, 11}});
  const auto line = [](const char* what, const TensorView& v) {
    std::printf("%-34s shape %-12s strides %-12s %s\n", what, to_string(v.shape()).c_str(),
                to_string(v.strides()).c_str(), v.is_contiguous() ? "in reading order" : "");
  };
  line("t", t);
  const TensorView split_view = view(t, {2, 3, 2});
  line("view(t, {2, 3, 2})", split_view);
  const TensorView turned = transpose(split_view, 0, 1);
  line("transpose(that, 0, 1)", turned);
  const auto dense = contiguous(turned);
  line("contiguous(that)", dense.view());
  try {
    view(turned, {6, 2});
  } catch (const Error& error) {
    std::printf("view(transposed, {6, 2}) says:\n  %s\n", error.what());
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, void (*)()> tables = {
      {"matrices", matrices}, {"scale", scale},     {"mask", mask},      {"heads", heads},
      {"split", split},       {"buffers", buffers}, {"strides", strides}};
  const auto table = argc == 2 ? tables.find(argv[1]) : tables.end();
  if (table == tables.end()) {
    std::fprintf(stderr, "say one of: matrices scale mask heads split buffers strides\n");
    return 2;
  }
  table->second();
  return 0;
}
