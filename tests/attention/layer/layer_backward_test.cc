// The layer's gradients are right: against PyTorch's, and against differences of the forward pass.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "cephalo/core/format.h"
#include "cephalo/core/random.h"
#include "cephalo/learn/ladder.h"
#include "tests/support/golden.h"
#include "tests/support/golden_layer.h"
#include "tests/support/layer_backward.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::all_zero;
using testing::error_of;
using testing::golden_difference;
using testing::golden_layer;
using testing::golden_magnitude;
using testing::headline;
using testing::kLayerEngines;
using testing::LayerBackward;
using testing::normal;

// --- PyTorch -------------------------------------------------------------------------------------

// Within 1e-5 of the largest number. -> the largest difference as a part of that
double expect_golden(const nlohmann::json& golden, const TensorView& ours,
                     const std::string& what) {
  const double bound = 1e-5 * std::max(1.0, golden_magnitude(golden));
  const double difference = golden_difference(golden, ours);
  EXPECT_LE(difference, bound) << what;
  return difference / bound;
}

double expect_golden_gradients(const nlohmann::json& c, const LayerBackward& ours) {
  const nlohmann::json& golden = c.at("gradients");
  double worst = expect_golden(golden.at("x"), ours.dx, "dx");
  std::size_t compared = 1;
  if (golden.contains("kv")) {
    worst = std::max(worst, expect_golden(golden.at("kv"), ours.dkv, "dkv"));
    ++compared;
  }
  for (const NamedParameter& p : ours.gradients.named()) {
    EXPECT_TRUE(golden.contains(p.name)) << p.name;
    if (!golden.contains(p.name)) continue;
    worst = std::max(worst, expect_golden(golden.at(p.name), p.value, p.name));
    ++compared;
  }
  EXPECT_EQ(compared, golden.size());
  return worst;
}

TEST(LayerBackwardTest, every_rung_has_the_gradients_of_pytorch) {
  const auto golden = testing::read_golden("ladder.json");
  double worst = 0.0;
  int compared = 0;
  for (const auto& c : golden.at("cases")) {
    if (c.at("case") != "rung" || !c.contains("gradients")) continue;
    SCOPED_TRACE(headline(c));
    const auto layer = golden_layer(c);
    const Tensor x = normal({2, c.at("tokens"), c.at("d_in")}, c.at("x_seed"));
    for (const Engine engine : kLayerEngines) {
      // PyTorch's dropout is drawn by the reference engine alone.
      if (engine == Engine::fused && c.at("dropout").get<double>() > 0.0) continue;
      TorchGenerator generator(c.at("dropout_seed").get<std::uint64_t>());
      const auto [y, saved] = layer->forward_train(x, {.generator = &generator, .engine = engine});
      const Tensor dy = normal(y.shape(), c.at("g_seed"));
      worst = std::max(worst, expect_golden_gradients(c, LayerBackward(*layer, saved, dy, x)));
      ++compared;
    }
  }
  EXPECT_EQ(compared, 91);
  testing::report(format_text("gradients of rungs: worst {:.2f} of what is allowed", worst));
}

TEST(LayerBackwardTest, cross_attention_has_the_gradients_of_nn_multihead_attention) {
  const auto golden = testing::read_golden("ladder.json");
  int compared = 0;
  for (const auto& c : golden.at("cases")) {
    if (c.at("case") != "torch_module") continue;
    MultiHeadAttention layer({.d_in = 24,
                              .d_out = 24,
                              .num_heads = 3,
                              .qkv_bias = true,
                              .causal = false,
                              .seed = c.at("seed").get<std::uint64_t>(),
                              .form = Form::torch});
    const Tensor x = normal({2, 5, 24}, c.at("x_seed"));
    const Tensor other = normal({2, 6, 24}, c.at("kv_seed"));
    const TensorView kv = other;
    for (const Engine engine : kLayerEngines) {
      const auto [y, saved] = layer.forward_train(x, {.kv = &kv, .engine = engine});
      const Tensor dy = normal(y.shape(), c.at("g_seed"));
      expect_golden_gradients(c, LayerBackward(layer, saved, dy, x, &kv));
      ++compared;
    }
  }
  EXPECT_EQ(compared, 4);
}

// --- Differences of the forward pass -------------------------------------------------------------

// A configuration in float64, small enough to change every number of it.
struct Small {
  std::string name;
  MultiHeadAttentionOptions options = {
      .d_in = 5, .d_out = 8, .num_heads = 2, .qkv_bias = true, .seed = 3, .dtype = DType::f64};
  Mask mask = {};
  dim_t kv_tokens = 0;  // of a second input
  bool torch_dropout = false;
};

std::vector<Small> small_cases() {
  using O = MultiHeadAttentionOptions;
  std::vector<Small> cases;
  const auto add = [&](const std::string& name, const std::function<void(O&)>& change,
                       const Mask& mask = {}, dim_t kv_tokens = 0) {
    cases.push_back({.name = name, .mask = mask, .kv_tokens = kv_tokens});
    change(cases.back().options);
  };
  const auto plain = [](O&) {};
  add("plain", plain);
  add("unmasked", [](O& o) { o.causal = false; });
  add("no_biases", [](O& o) { o.qkv_bias = false, o.out_bias = false; });
  add("no_out_proj", [](O& o) { o.out_proj = false; });
  add("grouped", [](O& o) { o.d_out = 12, o.num_heads = 6, o.num_kv_heads = 2; });
  add("one_kv_head", [](O& o) { o.num_kv_heads = 1, o.v_dim = 3; });
  add("wide_values", [](O& o) { o.v_dim = 7; });
  add("rotary", [](O& o) { o.rotary = Rotary{}; });
  add("interleaved", [](O& o) { o.rotary = Rotary{.interleaved = true}, o.num_kv_heads = 1; });
  add(
      "rotary_lengths", [](O& o) { o.rotary = Rotary{}; }, lengths({4, 2}, {3, 4}));
  add(
      "cross", [](O& o) { o.causal = false; }, {}, 6);
  add(
      "cross_width", [](O& o) { o.d_kv = 7, o.causal = false, o.num_kv_heads = 1; }, {}, 3);
  add(
      "cross_rotary", [](O& o) { o.d_kv = 4, o.rotary = Rotary{}, o.v_dim = 3; }, {}, 6);
  add(
      "cross_no_out", [](O& o) { o.out_proj = false, o.causal = false; }, window(1, 1), 5);
  add("window", plain, window(1, 0));
  add("lengths", plain, lengths({4, 2}));
  add("padded", plain, lengths({4, 2}, {4, 2}));
  add("documents", plain, documents(Tensor::of({0, 0, 1, 1}, DType::i64)));
  add("alibi", plain, alibi({0.5F, 0.25F}));
  add("bias", plain, bias(normal({2, 4, 4}, 17, DType::f64)));
  add("dropout", [](O& o) { o.dropout = 0.4; });
  add("torch_dropout", [](O& o) { o.dropout = 0.4, o.dropout_stream = DropoutStream::torch; });
  cases.back().torch_dropout = true;
  add("torch_dropout_heads",
      [](O& o) { o.dropout = 0.4, o.dropout_stream = DropoutStream::torch, o.form = Form::heads; });
  cases.back().torch_dropout = true;
  for (const Form form :
       {Form::raw, Form::heads, Form::linear, Form::joined, Form::torch, Form::gpt2}) {
    add(format_text("form_{}", name(form)), [form](O& o) {
      o.form = form;
      o.qkv_bias = form != Form::raw;
      o.out_proj = form != Form::raw;
    });
  }
  return cases;
}

// Σ y · dy of one forward pass, dropout drawn as in every other one.
double weighed_sum(const MultiHeadAttention& layer, const TensorView& x, CallOptions call,
                   const TensorView& dy) {
  TorchGenerator generator(7);
  call.generator = &generator;
  const Tensor y = layer(x, call);
  double sum = 0.0;
  for (dim_t k = 0; k < y.numel(); ++k) sum += y.data_as<double>()[k] * dy.data_as<double>()[k];
  return sum;
}

// (f(t + eps) − f(t − eps)) / 2 eps for every number of t: [...]
Tensor differences(Tensor& t, const std::function<double()>& f) {
  constexpr double kEps = 1e-6;
  Tensor result = Tensor::empty(t.shape(), DType::f64);
  for (dim_t k = 0; k < t.numel(); ++k) {
    double& number = t.mutable_data_as<double>()[k];
    const double before = number;
    number = before + kEps;
    const double above = f();
    number = before - kEps;
    const double below = f();
    number = before;
    result.mutable_data_as<double>()[k] = (above - below) / (2 * kEps);
  }
  return result;
}

// Within 1e-5, or 1e-3 of the number.
void expect_close(const TensorView& ours, const Tensor& expected, const std::string& what) {
  const Tensor dense = Tensor::copy(ours, DType::f64);
  ASSERT_EQ(dense.shape(), expected.shape()) << what;
  for (dim_t k = 0; k < dense.numel(); ++k) {
    const double there = expected.data_as<double>()[k];
    ASSERT_NEAR(dense.data_as<double>()[k], there, 1e-5 + 1e-3 * std::abs(there))
        << what << " number " << k;
  }
}

void check_by_differences(const Small& each, Engine engine) {
  MultiHeadAttention layer(each.options);
  Tensor x = normal({2, 4, layer.options().d_in}, 1, DType::f64);
  const dim_t kv_width = each.options.d_kv == 0 ? each.options.d_in : each.options.d_kv;
  Tensor kv = normal({2, std::max<dim_t>(each.kv_tokens, 1), kv_width}, 2, DType::f64);
  const TensorView kv_view = kv;
  CallOptions call{.mask = each.mask, .call = 5, .engine = engine};
  if (each.kv_tokens > 0) call.kv = &kv_view;
  TorchGenerator generator(7);
  CallOptions training = call;
  training.generator = &generator;
  const auto [y, saved] = layer.forward_train(x, training);
  const Tensor dy = normal(y.shape(), 3, DType::f64);
  const LayerBackward ours(layer, saved, dy, x, call.kv);
  const TensorView weights = dy;
  const auto forward = [&] { return weighed_sum(layer, x, call, weights); };
  expect_close(ours.dx, differences(x, forward), "dx");
  if (call.kv != nullptr) expect_close(ours.dkv, differences(kv, forward), "dkv");
  for (const NamedParameter& p : ours.gradients.named()) {
    Tensor value = Tensor::copy(layer.parameter(p.name));
    const auto with_value = [&] {
      layer.update(p.name, value);
      return forward();
    };
    expect_close(p.value, differences(value, with_value), p.name);
    layer.update(p.name, value);
  }
}

TEST(LayerBackwardTest, gradients_are_the_differences_of_the_forward_pass) {
  for (const Small& each : small_cases()) {
    for (const Engine engine : kLayerEngines) {
      if (each.torch_dropout && engine == Engine::fused) continue;
      SCOPED_TRACE(
          format_text("{} {}", each.name, engine == Engine::fused ? "fused" : "reference"));
      check_by_differences(each, engine);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(LayerBackwardTest, rung_1_has_the_differences_of_its_forward_pass) {
  for (const Shape& shape : {Shape{4, 3}, Shape{2, 5, 3}}) {
    Tensor x = normal(shape, 1, DType::f64);
    const Tensor dcontext = normal(shape, 2, DType::f64);
    const Tensor dx = simple_attention_backward(x, dcontext);
    const auto forward = [&] {
      const Tensor context = simple_attention(x).context;
      double sum = 0.0;
      for (dim_t k = 0; k < context.numel(); ++k) {
        sum += context.data_as<double>()[k] * dcontext.data_as<double>()[k];
      }
      return sum;
    };
    expect_close(dx, differences(x, forward), "dx");
  }
  EXPECT_EQ(error_of([] {
              simple_attention_backward(normal({4, 3}, 1), normal({3, 3}, 1));
            }),
            "simple_attention_backward: dcontext is [3, 3], x is [4, 3]");
  EXPECT_EQ(simple_attention_backward(Tensor::empty({0, 3}), Tensor::empty({0, 3})).shape(),
            (Shape{0, 3}));
}

TEST(LayerBackwardTest, gradients_carry_the_layers_names_in_its_order) {
  for (const Small& each : small_cases()) {
    SCOPED_TRACE(each.name);
    MultiHeadAttention layer(each.options);
    const Gradients gradients = layer.new_gradients();
    const auto parameters = layer.parameters();
    ASSERT_EQ(gradients.named().size(), parameters.size());
    for (std::size_t n = 0; n < parameters.size(); ++n) {
      EXPECT_EQ(gradients.named()[n].name, parameters[n].name);
      EXPECT_EQ(gradients.named()[n].value.shape(), parameters[n].value.shape());
      EXPECT_TRUE(all_zero(gradients.named()[n].value));
    }
  }
  MultiHeadAttention half({.d_in = 4, .d_out = 4, .seed = 1, .dtype = DType::bf16});
  EXPECT_EQ(half.new_gradients().dtype(), DType::f32);
}

}  // namespace
}  // namespace cephalo
