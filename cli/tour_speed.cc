
#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "cephalo/core/format.h"
#include "cephalo/core/random.h"
#include "cephalo/learn/ladder.h"
#include "cli/tour_tables.h"

namespace cephalo::cli {
namespace {

constexpr dim_t kWidth = 768;  // that of GPT-2 Small
constexpr dim_t kHeads = 12;
constexpr dim_t kHeadDim = kWidth / kHeads;
constexpr int kRuns = 15;

double milliseconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  const std::chrono::duration<double, std::milli> spent = std::chrono::steady_clock::now() - start;
  return spent.count();
}

// Best of several runs of each; they take turns, so that both meet the same machine.
struct Times {
  double left = std::numeric_limits<double>::infinity();
  double right = std::numeric_limits<double>::infinity();
};
Times side_by_side(int runs, const std::function<void()>& left,
                   const std::function<void()>& right) {
  Times best;
  for (int run = 0; run < runs; ++run) {
    best.left = std::min(best.left, milliseconds(left));
    best.right = std::min(best.right, milliseconds(right));
  }
  return best;
}

// a, b: [1, tokens, width]
double largest_difference(const TensorView& a, const TensorView& b) {
  double largest = 0.0;
  for (dim_t i = 0; i < a.dim(1); ++i) {
    for (dim_t d = 0; d < a.dim(2); ++d) {
      largest = std::max(largest, std::abs(a.at({0, i, d}) - b.at({0, i, d})));
    }
  }
  return largest;
}

// Rung 4 as PyTorch runs it: every head is called, then the results are laid side by side.
// x: [1, tokens, d_in] -> [1, tokens, heads · head_dim]
Tensor call_in_turn(const std::vector<CausalAttention>& heads, const TensorView& x) {
  Tensor y = Tensor::empty({1, x.dim(1), std::ssize(heads) * kHeadDim});
  dim_t begin = 0;
  for (const CausalAttention& head : heads) {
    y.mutable_view().slice(2, begin, begin + kHeadDim).copy_from(head(x));
    begin += kHeadDim;
  }
  return y;
}

std::vector<CausalAttention> separate_heads() {
  TorchGenerator generator(123);
  std::vector<CausalAttention> heads;
  for (dim_t h = 0; h < kHeads; ++h) {
    heads.emplace_back(CausalAttentionOptions{
        .d_in = kWidth, .d_out = kHeadDim, .context_length = 1024, .generator = &generator});
    heads.back().eval();
    heads.back().prepare();
  }
  return heads;
}

// Rung 5 with the matrices of those heads, one below the other.
MultiHeadAttention stacked(const std::vector<CausalAttention>& heads) {
  MultiHeadAttention layer(
      {.d_in = kWidth, .d_out = kWidth, .num_heads = kHeads, .out_proj = false, .seed = 123});
  for (const char* name : {"W_query.weight", "W_key.weight", "W_value.weight"}) {
    Tensor rows = Tensor::empty({kWidth, kWidth});
    dim_t begin = 0;
    for (const CausalAttention& head : heads) {
      rows.mutable_view().slice(0, begin, begin + kHeadDim).copy_from(head.parameter(name));
      begin += kHeadDim;
    }
    layer.update(name, rows);
  }
  layer.eval();
  layer.prepare();
  return layer;
}

// The rung-7 layer with the parameters of the rung-6 one: q above k above v.
FastMultiHeadAttention with_parameters_of(const EasyMultiHeadAttention& easy) {
  FastMultiHeadAttention fast({.d_model = kWidth, .num_heads = kHeads, .seed = 123});
  for (const std::string kind : {"weight", "bias"}) {
    Tensor rows = Tensor::empty(fast.parameter("qkv_proj." + kind).shape());
    dim_t begin = 0;
    for (const char* part : {"q_linear.", "k_linear.", "v_linear."}) {
      rows.mutable_view().slice(0, begin, begin + kWidth).copy_from(easy.parameter(part + kind));
      begin += kWidth;
    }
    fast.update("qkv_proj." + kind, rows);
    fast.update("out_proj." + kind, easy.parameter("out_proj." + kind));
  }
  return fast;
}

std::string class_row(const std::string& label, const std::string& easy, const std::string& fast) {
  return format_text("{:<11} {:<29} {}\n", label, easy, fast);
}

// The formulas of both traces; one line for a step, but q, k and v where they are made.
std::string steps_side_by_side(const Trace& easy, const Trace& fast) {
  std::string out;
  for (const Step& step : easy) {
    const bool is_made = step.name == "PROJECT";
    const bool is_shown = step.key.starts_with("q_") || step.key == "scores" ||
                          step.key == "weights" || step.key.starts_with("context") ||
                          step.key == "output";
    if (!is_made && !is_shown) continue;
    const std::string label = step.key == "k" || step.key == "v" ? "" : step.name;
    out += class_row(label, step.formula, fast.at(step.key).formula);
  }
  return out;
}

}  // namespace

std::string tour_split() {
  const std::vector<CausalAttention> heads = separate_heads();
  const MultiHeadAttention together = stacked(heads);
  std::string out = "12 heads of 64, width 768, parameters laid out once: prepare()\n";
  out += format_text("{:>6}  {:<26} {}\n", "", "rung 4: a list of heads", "rung 5: one, split");
  out += format_text("{:>6}  {:<26} {}\n", "tokens", "12 calls, 12 products", "1 call, 1 product");
  double largest = 0.0;
  for (const dim_t tokens : {1, 16, 256}) {
    const Tensor x = TorchGenerator(7).randn({1, tokens, kWidth});
    largest = std::max(largest, largest_difference(call_in_turn(heads, x), together(x)));
    const Times best = side_by_side(
        kRuns, [&] { call_in_turn(heads, x); }, [&] { together(x); });
    out += format_text("{:>6}  {:<26} {:.2f} ms\n", tokens, format_text("{:.2f} ms", best.left),
                       best.right);
  }
  return out + format_text("largest difference of the outputs: {}\n", largest);
}

std::string tour_classes() {
  EasyMultiHeadAttention easy({.d_model = kWidth, .num_heads = kHeads, .seed = 123});
  FastMultiHeadAttention fast = with_parameters_of(easy);
  easy.eval();
  fast.eval();
  std::string out = class_row("", "beginner: rung 6", "production: rung 7");
  out += class_row("step", easy.rung(), fast.rung());
  const Tensor six = TorchGenerator(7).randn({1, 6, kWidth});
  out += steps_side_by_side(easy.trace(six), fast.trace(six));
  out += class_row("matrices", "3 of (768, 768), 1 out", "1 of (2304, 768), 1 out");
  out += class_row("parameters", format_text("{}", easy.parameter_count()),
                   format_text("{}", fast.parameter_count()));
  out += class_row("mask", "none", "a tensor, 0 = hidden");

  const Tensor x = TorchGenerator(7).randn({1, 256, kWidth});
  out += "\n256 tokens of 768\n";
  const auto times = [&](const char* label, Engine engine, int runs) {
    const CallOptions call{.engine = engine};
    const Times best = side_by_side(
        runs, [&] { easy(x, call); }, [&] { fast(x, call); });
    out +=
        class_row(label, format_text("{:.1f} ms", best.left), format_text("{:.1f} ms", best.right));
  };
  times("reference", Engine::reference, 3);
  times("fused", Engine::fused, kRuns);
  easy.prepare();
  fast.prepare();
  times("prepared", Engine::fused, kRuns);
  return out + format_text("largest difference of the outputs: {}\n",
                           largest_difference(easy(x), fast(x)));
}

}  // namespace cephalo::cli
