// The layer's backward pass: against PyTorch's gradients, against differences of the forward pass,
// and what a saved pass promises.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "cephalo/attention/kv_cache.h"
#include "cephalo/core/format.h"
#include "cephalo/core/ops.h"
#include "cephalo/core/parallel.h"
#include "cephalo/core/random.h"
#include "cephalo/learn/ladder.h"
#include "tests/support/golden.h"
#include "tests/support/golden_layer.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::all_finite;
using testing::all_zero;
using testing::error_of;
using testing::golden_difference;
using testing::golden_layer;
using testing::golden_magnitude;
using testing::headline;
using testing::largest_difference;
using testing::largest_magnitude;
using testing::normal;
using testing::same_bits;

constexpr Engine kEngines[] = {Engine::reference, Engine::fused};

// One backward pass with everything it writes.
struct Backward {
  Backward(const MultiHeadAttention& layer, const SavedPass& saved, const TensorView& dy,
           const TensorView& x, const TensorView* kv = nullptr)
      : dx(Tensor::full(x.shape(), std::nan(""), x.dtype())),
        dkv(kv != nullptr ? Tensor::full(kv->shape(), std::nan(""), kv->dtype()) : Tensor()),
        gradients(layer.new_gradients()) {
    layer.backward(saved, dy, dx, gradients, dkv);
  }
  Tensor dx;
  Tensor dkv;
  Gradients gradients;
};

bool same_bits_of_all(const Backward& a, const Backward& b) {
  if (!same_bits(a.dx, b.dx) || !same_bits(a.dkv, b.dkv)) return false;
  const auto ours = a.gradients.named();
  const auto theirs = b.gradients.named();
  for (std::size_t n = 0; n < ours.size(); ++n) {
    if (!same_bits(ours[n].value, theirs[n].value)) return false;
  }
  return true;
}

// --- PyTorch -------------------------------------------------------------------------------------

// Within 1e-5 of the largest number. -> the largest difference as a part of that
double expect_golden(const nlohmann::json& golden, const TensorView& ours,
                     const std::string& what) {
  const double bound = 1e-5 * std::max(1.0, golden_magnitude(golden));
  const double difference = golden_difference(golden, ours);
  EXPECT_LE(difference, bound) << what;
  return difference / bound;
}

double expect_golden_gradients(const nlohmann::json& c, const Backward& ours) {
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
    for (const Engine engine : kEngines) {
      // PyTorch's dropout is drawn by the reference engine alone.
      if (engine == Engine::fused && c.at("dropout").get<double>() > 0.0) continue;
      TorchGenerator generator(c.at("dropout_seed").get<std::uint64_t>());
      const auto [y, saved] = layer->forward_train(x, {.generator = &generator, .engine = engine});
      const Tensor dy = normal(y.shape(), c.at("g_seed"));
      worst = std::max(worst, expect_golden_gradients(c, Backward(*layer, saved, dy, x)));
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
    for (const Engine engine : kEngines) {
      const auto [y, saved] = layer.forward_train(x, {.kv = &kv, .engine = engine});
      const Tensor dy = normal(y.shape(), c.at("g_seed"));
      expect_golden_gradients(c, Backward(layer, saved, dy, x, &kv));
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
  const Backward ours(layer, saved, dy, x, call.kv);
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
    for (const Engine engine : kEngines) {
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

// --- Sizes where tiles end somewhere inside, and element types
// ------------------------------------

struct Medium {
  std::string name;
  MultiHeadAttentionOptions options;
  dim_t kv_tokens = 0;
};
std::vector<Medium> medium_cases() {
  const MultiHeadAttentionOptions plain{
      .d_in = 45, .d_out = 48, .num_heads = 4, .qkv_bias = true, .seed = 3};
  std::vector<Medium> cases;
  const auto add = [&](const std::string& name, auto&& change, dim_t kv_tokens = 0) {
    cases.push_back({name, plain, kv_tokens});
    change(cases.back().options);
  };
  using O = MultiHeadAttentionOptions;
  add("plain", [](O&) {});
  add("grouped_rotary", [](O& o) { o.num_kv_heads = 2, o.rotary = Rotary{}, o.v_dim = 7; });
  add("no_out_proj", [](O& o) { o.out_proj = false, o.causal = false; });
  add("dropout", [](O& o) { o.dropout = 0.3; });
  add(
      "cross", [](O& o) { o.causal = false; }, 23);
  add(
      "cross_width", [](O& o) { o.d_kv = 33, o.causal = false; }, 61);
  add("bfloat16", [](O& o) { o.dtype = DType::bf16; });
  add("float16", [](O& o) { o.dtype = DType::f16, o.out_proj = false; });
  add("float64", [](O& o) { o.dtype = DType::f64, o.rotary = Rotary{}; });
  return cases;
}

template <typename Use>
void for_medium_layers(Use&& use) {
  for (const Medium& each : medium_cases()) {
    SCOPED_TRACE(each.name);
    MultiHeadAttention layer(each.options);
    const DType dtype = each.options.dtype;
    const Tensor x = normal({3, 67, each.options.d_in}, 1, dtype);
    const dim_t width = each.options.d_kv == 0 ? each.options.d_in : each.options.d_kv;
    const Tensor kv = normal({3, std::max<dim_t>(each.kv_tokens, 1), width}, 2, dtype);
    const TensorView kv_view = kv;
    CallOptions call{.call = 4};
    if (each.kv_tokens > 0) call.kv = &kv_view;
    use(layer, x, call);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

// Sums of a few hundred rounded products, of terms whose magnitudes are those of the result.
double bound_of(DType dtype, double magnitude) {
  const double unit = dtype == DType::f64 ? 0x1p-53 : dtype == DType::f32 ? 0x1p-24 : 0x1p-8;
  return (is_16_bit_float(dtype) ? 1.0 : 64.0) * unit * std::max(magnitude, 1.0);
}

TEST(LayerBackwardTest, the_fused_engine_equals_the_reference_engine) {
  double worst = 0.0;
  for_medium_layers([&](MultiHeadAttention& layer, const Tensor& x, CallOptions call) {
    call.engine = Engine::reference;
    const auto [y, saved] = layer.forward_train(x, call);
    const Tensor dy = normal(y.shape(), 3, y.dtype());
    const Backward expected(layer, saved, dy, x, call.kv);
    call.engine = Engine::fused;
    const auto [y_fused, saved_fused] = layer.forward_train(x, call);
    const Backward ours(layer, saved_fused, dy, x, call.kv);
    const auto compare = [&](const TensorView& a, const TensorView& b, const std::string& what) {
      const double bound = bound_of(b.dtype(), largest_magnitude(b));
      worst = std::max(worst, largest_difference(a, b) / bound);
      EXPECT_LE(largest_difference(a, b), bound) << what;
    };
    compare(ours.dx, expected.dx, "dx");
    if (call.kv != nullptr) compare(ours.dkv, expected.dkv, "dkv");
    const auto named = expected.gradients.named();
    for (std::size_t n = 0; n < named.size(); ++n) {
      EXPECT_NE(named[n].value.dtype(), DType::bf16);
      compare(ours.gradients.named()[n].value, named[n].value, named[n].name);
    }
  });
  testing::report(format_text("layer backward: worst {:.2f} of what is allowed", worst));
}

TEST(LayerBackwardTest, y_has_the_bits_of_the_plain_call) {
  for (const Engine engine : kEngines) {
    for_medium_layers([&](MultiHeadAttention& layer, const Tensor& x, CallOptions call) {
      call.engine = engine;
      EXPECT_TRUE(same_bits(layer.forward_train(x, call).y, layer(x, call)));
      layer.eval();
      EXPECT_TRUE(same_bits(layer.forward_train(x, call).y, layer(x, call)));
    });
  }
}

TEST(LayerBackwardTest, threads_change_no_bit) {
  for (const Engine engine : kEngines) {
    for_medium_layers([&](MultiHeadAttention& layer, const Tensor& x, CallOptions call) {
      call.engine = engine;
      std::optional<Backward> one;
      for (const int count : {1, 2, 3, 7}) {
        call.threads = count;
        const auto [y, saved] = layer.forward_train(x, call);
        Backward many(layer, saved, normal(y.shape(), 3, y.dtype()), x, call.kv);
        if (!one) {
          one.emplace(std::move(many));
        } else {
          ASSERT_TRUE(same_bits_of_all(many, *one)) << count;
        }
      }
    });
  }
}

// --- What a saved pass promises ------------------------------------------------------------------

MultiHeadAttention small_layer(std::uint64_t seed = 1) {
  return MultiHeadAttention(
      {.d_in = 6, .d_out = 8, .dropout = 0.2, .num_heads = 2, .qkv_bias = true, .seed = seed});
}

TEST(LayerBackwardTest, a_second_backward_of_one_pass_adds_the_same_again) {
  const MultiHeadAttention layer = small_layer();
  const Tensor x = normal({2, 5, 6}, 1);
  const auto [y, saved] = layer.forward_train(x);
  const Tensor dy = normal(y.shape(), 2);
  const Backward once(layer, saved, dy, x);
  Backward twice(layer, saved, dy, x);
  layer.backward(saved, dy, twice.dx, twice.gradients);
  EXPECT_TRUE(same_bits(twice.dx, once.dx));  // written, not added to
  for (const NamedParameter& p : once.gradients.named()) {
    EXPECT_LE(largest_difference(twice.gradients.find(p.name), multiply(p.value, 2.0)),
              1e-6 * largest_magnitude(p.value))
        << p.name;
  }
  twice.gradients.zero();
  for (const NamedParameter& p : twice.gradients.named()) EXPECT_TRUE(all_zero(p.value)) << p.name;
  layer.backward(saved, dy, twice.dx, twice.gradients);
  EXPECT_TRUE(same_bits_of_all(twice, once));
}

TEST(LayerBackwardTest, many_forwards_go_back_in_any_order) {
  const MultiHeadAttention layer = small_layer();
  std::vector<Tensor> x;
  std::vector<TrainResult> passes;
  std::vector<Backward> at_once;
  const Tensor dy = normal({2, 5, 8}, 2);
  for (std::uint64_t n = 0; n < 4; ++n) {
    x.push_back(normal({2, 5, 6}, n));
    passes.push_back(layer.forward_train(x.back()));
    at_once.emplace_back(layer, passes.back().saved, dy, x.back());
  }
  layer(x[0]);  // calls that save nothing do not matter
  for (const std::size_t n : {2U, 0U, 3U, 1U, 2U}) {
    EXPECT_TRUE(same_bits_of_all(Backward(layer, passes[n].saved, dy, x[n]), at_once[n])) << n;
  }
  EXPECT_FALSE(same_bits(at_once[0].dx, at_once[1].dx));
}

TEST(LayerBackwardTest, a_pass_owns_what_it_needs_unless_told_to_borrow) {
  const MultiHeadAttention layer = small_layer();
  Tensor hidden = Tensor::zeros({5, 5}, DType::boolean);
  hidden.set({4, 1}, 1);
  Tensor x = normal({2, 5, 6}, 1);
  Tensor kv = normal({2, 5, 6}, 4);
  const TensorView kv_view = kv;
  const Tensor dy = normal({2, 5, 8}, 2);
  const CallOptions call{.kv = &kv_view, .mask = drop(hidden), .call = 1};
  const auto [y, saved] = layer.forward_train(x, call);
  const auto [y_borrowing, borrowing] = layer.forward_train(x, call, KeepInput::borrow);
  EXPECT_EQ(saved.bytes(), borrowing.bytes() + x.bytes() + kv.bytes() + hidden.bytes());
  const Backward before(layer, saved, dy, x, &kv_view);
  EXPECT_TRUE(same_bits_of_all(Backward(layer, borrowing, dy, x, &kv_view), before));
  for (Tensor* t : {&x, &kv, &hidden}) t->mutable_view().fill(1.0);
  EXPECT_TRUE(same_bits_of_all(Backward(layer, saved, dy, x, &kv_view), before));
  EXPECT_FALSE(same_bits_of_all(Backward(layer, borrowing, dy, x, &kv_view), before));
}

TEST(LayerBackwardTest, a_pass_into_memory_of_an_older_one_has_the_same_bits) {
  MultiHeadAttention layer(
      {.d_in = 12, .d_out = 18, .dropout = 0.3, .num_heads = 3, .rotary = Rotary{}, .seed = 3});
  for (const Engine engine : kEngines) {
    SavedPass saved;
    for (const dim_t tokens : {9, 14, 14, 5}) {
      const Tensor x = normal({2, tokens, 12}, static_cast<std::uint64_t>(tokens));
      const Tensor dy = normal({2, tokens, 18}, 7);
      CallOptions call;
      call.call = 4;
      call.engine = engine;
      const TrainResult expected = layer.forward_train(x, call);
      Tensor y = Tensor::full({2, tokens, 18}, 99.0);
      layer.forward_train_into(x, y, saved, call, KeepInput::borrow);
      EXPECT_TRUE(same_bits(y, expected.y));
      EXPECT_TRUE(
          same_bits_of_all(Backward(layer, saved, dy, x), Backward(layer, expected.saved, dy, x)));
      call.drop = false;
      EXPECT_FALSE(same_bits(layer(x, call), expected.y));
    }
    EXPECT_NE(error_of([&] {
                Tensor wrong = Tensor::empty({2, 5, 17});
                layer.forward_train_into(normal({2, 5, 12}, 1), wrong, saved);
              }),
              "");
    EXPECT_TRUE(saved.empty());
  }
}

TEST(LayerBackwardTest, a_call_without_drop_is_one_of_eval_mode) {
  MultiHeadAttention layer({.d_in = 8, .d_out = 8, .dropout = 0.5, .num_heads = 2, .seed = 3});
  const Tensor x = normal({6, 8}, 1);
  CallOptions call;
  call.drop = false;
  const Tensor y = layer(x, call);
  layer.eval();
  EXPECT_TRUE(same_bits(layer(x), y));
}

TEST(LayerBackwardTest, a_pass_outlives_a_move_of_its_layer_and_of_itself) {
  MultiHeadAttention layer = small_layer();
  const Tensor x = normal({2, 5, 6}, 1);
  const Tensor dy = normal({2, 5, 8}, 2);
  TrainResult result = layer.forward_train(x);
  const Backward before(layer, result.saved, dy, x);
  const MultiHeadAttention moved = std::move(layer);
  const SavedPass saved = std::move(result.saved);
  EXPECT_TRUE(same_bits_of_all(Backward(moved, saved, dy, x), before));
}

TEST(LayerBackwardTest, memory_of_a_pass_is_linear_in_tokens) {
  const MultiHeadAttention layer = small_layer();
  const std::size_t small = layer.forward_train(normal({1, 100, 6}, 1)).saved.bytes();
  EXPECT_EQ(layer.forward_train(normal({1, 400, 6}, 1)).saved.bytes(), 4 * small);
}

TEST(LayerBackwardTest, dx_and_dkv_need_not_be_wanted_and_may_lie_anyhow) {
  MultiHeadAttention layer({.d_in = 6, .d_out = 8, .num_heads = 2, .causal = false, .seed = 1});
  const Tensor x = normal({2, 5, 6}, 1);
  const Tensor other = normal({2, 4, 6}, 2);
  const TensorView kv = other;
  const auto [y, saved] = layer.forward_train(x, {.kv = &kv});
  const Tensor dy = normal(y.shape(), 3);
  const Backward all(layer, saved, dy, x, &kv);
  Gradients gradients = layer.new_gradients();
  layer.backward(saved, dy, {}, gradients);
  for (const NamedParameter& p : all.gradients.named()) {
    EXPECT_TRUE(same_bits(gradients.find(p.name), p.value)) << p.name;
  }
  // dx beside something else, dkv transposed, dy with steps between its numbers, 16 bits.
  Tensor wide = Tensor::full({2, 5, 9}, 7.0);
  Tensor turned = Tensor::empty({4, 2, 6});
  const MutableTensorView dkv(turned.mutable_view().mutable_data(), DType::f32, {2, 4, 6},
                              {6, 12, 1});
  Tensor apart = Tensor::empty({2, 5, 8, 2});
  apart.mutable_view().select(3, 0).copy_from(dy);
  layer.backward(saved, apart.select(3, 0), wide.mutable_view().slice(2, 1, 7), gradients, dkv);
  EXPECT_TRUE(same_bits(wide.slice(2, 1, 7), all.dx));
  EXPECT_TRUE(same_bits(dkv, all.dkv));
  EXPECT_EQ(wide.at({1, 4, 0}), 7.0);
  EXPECT_EQ(wide.at({1, 4, 7}), 7.0);
  Tensor rounded = Tensor::empty({2, 5, 6}, DType::bf16);
  layer.backward(saved, dy, rounded, gradients);
  EXPECT_TRUE(same_bits(rounded, Tensor::copy(all.dx, DType::bf16)));
}

TEST(LayerBackwardTest, an_input_without_batch_has_gradients_without_batch) {
  const MultiHeadAttention layer = small_layer();
  const Tensor x = normal({1, 5, 6}, 1);
  const Tensor dy = normal({1, 5, 8}, 2);
  const auto [y, saved] = layer.forward_train(x, {.call = 1});
  const auto [y_flat, saved_flat] = layer.forward_train(x[0], {.call = 1});
  const Backward whole(layer, saved, dy, x);
  const Backward flat(layer, saved_flat, dy[0], x[0]);
  EXPECT_EQ(y_flat.shape(), (Shape{5, 8}));
  EXPECT_TRUE(same_bits(flat.dx, whole.dx[0]));
  for (const NamedParameter& p : whole.gradients.named()) {
    EXPECT_TRUE(same_bits(flat.gradients.find(p.name), p.value)) << p.name;
  }
}

TEST(LayerBackwardTest, nothing_in_gives_nothing_back) {
  const MultiHeadAttention layer = small_layer();
  for (const Engine engine : kEngines) {
    for (const Shape& shape : {Shape{0, 5, 6}, Shape{2, 0, 6}, Shape{0, 6}}) {
      const Tensor x = Tensor::empty(shape);
      const auto [y, saved] = layer.forward_train(x, {.engine = engine});
      const Backward ours(layer, saved, Tensor::empty(y.shape()), x);
      for (const NamedParameter& p : ours.gradients.named()) EXPECT_TRUE(all_zero(p.value));
    }
    // Queries without keys: the output is the bias of the last projection.
    const Tensor x = normal({2, 5, 6}, 1);
    const Tensor none = Tensor::empty({2, 0, 6});
    const TensorView kv = none;
    const auto [y, saved] = layer.forward_train(x, {.kv = &kv, .engine = engine});
    const Backward ours(layer, saved, Tensor::full(y.shape(), 1.0), x, &kv);
    EXPECT_TRUE(all_zero(ours.dx));
    for (const NamedParameter& p : ours.gradients.named()) {
      if (p.name == "out_proj.bias") {
        EXPECT_TRUE(same_bits(p.value, Tensor::full({8}, 10.0)));
      } else {
        EXPECT_TRUE(all_zero(p.value)) << p.name;
      }
    }
    // Keys that no query looks at.
    const Tensor no_query = Tensor::empty({2, 0, 6});
    const TensorView keys = x;
    const auto [y_none, saved_none] =
        layer.forward_train(no_query, {.kv = &keys, .engine = engine});
    EXPECT_TRUE(all_zero(Backward(layer, saved_none, y_none, no_query, &keys).dkv));
  }
}

TEST(LayerBackwardTest, nan_in_a_hidden_token_reaches_no_gradient) {
  MultiHeadAttention layer({.d_in = 6, .d_out = 8, .num_heads = 2, .qkv_bias = true, .seed = 1});
  Tensor x = normal({2, 5, 6}, 1);
  Tensor dy = normal({2, 5, 8}, 2);
  for (const dim_t t : {3, 4}) dy.mutable_view()[1][t].fill(0.0);
  for (const Engine engine : kEngines) {
    const CallOptions call{.mask = lengths({5, 3}, {5, 3}), .engine = engine};
    const auto clean = layer.forward_train(x, call);
    const Backward expected(layer, clean.saved, dy, x);
    Tensor dirty = Tensor::copy(x);
    dirty.mutable_view()[1][3].fill(std::nan(""));
    dirty.set({1, 4, 2}, std::numeric_limits<double>::infinity());
    const auto [y, saved] = layer.forward_train(dirty, call);
    const Backward ours(layer, saved, dy, dirty);
    EXPECT_TRUE(same_bits_of_all(ours, expected));
    EXPECT_TRUE(all_zero(ours.dx[1].slice(0, 3, 5)));
    // A visible one does reach them.
    dirty.set({1, 1, 0}, std::nan(""));
    const auto visible = layer.forward_train(dirty, call);
    EXPECT_FALSE(all_finite(Backward(layer, visible.saved, dy, dirty).dx));
  }
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

TEST(LayerBackwardTest, rung_7_goes_back_under_a_bare_tensor_as_mask) {
  FastMultiHeadAttention layer({.d_model = 8, .num_heads = 2, .seed = 5});
  const Tensor x = normal({2, 4, 8}, 7);
  Tensor lower = Tensor::zeros({4, 4});
  for (dim_t i = 0; i < 4; ++i) {
    for (dim_t j = 0; j <= i; ++j) lower.set({i, j}, 1);
  }
  const Tensor dy = normal({2, 4, 8}, 8);
  const auto bare = layer.forward_train(x, lower);
  const auto named = layer.forward_train(x, {.mask = causal()});
  EXPECT_TRUE(
      same_bits_of_all(Backward(layer, bare.saved, dy, x), Backward(layer, named.saved, dy, x)));
}

// --- Misuse --------------------------------------------------------------------------------------

TEST(LayerBackwardTest, misuse_is_a_named_error_and_leaves_everything_usable) {
  MultiHeadAttention layer = small_layer();
  const MultiHeadAttention other = small_layer();
  const Tensor x = normal({2, 5, 6}, 1);
  const auto [y, saved] = layer.forward_train(x);
  const SavedPass& pass = saved;
  const Tensor dy = normal({2, 5, 8}, 2);
  Tensor dx = Tensor::empty({2, 5, 6});
  Gradients gradients = layer.new_gradients();
  const auto error = [&](const MultiHeadAttention& of, const SavedPass& from, const TensorView& d,
                         const MutableTensorView& to, Gradients& sums,
                         const MutableTensorView& dkv = {}) {
    return error_of([&] { of.backward(from, d, to, sums, dkv); });
  };
  EXPECT_EQ(error(layer, SavedPass(), dy, dx, gradients),
            "MultiHeadAttention: backward needs the pass that forward_train saved; this one is "
            "empty");
  EXPECT_EQ(error(other, pass, dy, dx, gradients),
            "MultiHeadAttention: backward: this pass was saved by another layer");
  EXPECT_EQ(error(layer, pass, dy.slice(1, 0, 4), dx, gradients),
            "MultiHeadAttention: backward: dy is [2, 4, 8], y is [2, 5, 8]");
  EXPECT_EQ(error(layer, pass, dy[0], dx, gradients),
            "MultiHeadAttention: backward: dy is [5, 8], y is [2, 5, 8]");
  EXPECT_EQ(error(layer, pass, dy, dx.mutable_view().slice(2, 0, 5), gradients),
            "MultiHeadAttention: backward: dx is [2, 5, 5], x is [2, 5, 6]");
  EXPECT_EQ(error(layer, pass, dy, dx, gradients, dx),
            "MultiHeadAttention: backward: dkv is wanted, but this pass had no kv");
  EXPECT_EQ(error(layer, pass, Tensor::copy(dy, DType::f64), dx, gradients),
            "MultiHeadAttention: backward: dy is float64, the parameters are float32");
  Gradients wrong = MultiHeadAttention({.d_in = 6, .d_out = 8, .num_heads = 4}).new_gradients();
  EXPECT_EQ(error(layer, pass, dy, dx, wrong),
            "MultiHeadAttention: backward: these gradients belong to a layer of other sizes; "
            "new_gradients() makes matching ones");
  for (const NamedParameter& p : gradients.named()) EXPECT_TRUE(all_zero(p.value)) << p.name;
  EXPECT_EQ(error(layer, pass, dy, dx, gradients), "");

  layer.update("W_key.bias", Tensor::zeros({8}));
  EXPECT_EQ(error(layer, pass, dy, dx, gradients),
            "MultiHeadAttention: backward: the parameters changed after this pass (version 0 then, "
            "1 now); run forward_train again");
  const auto [y_new, saved_new] = layer.forward_train(x);
  EXPECT_NO_THROW(layer.backward(saved_new, dy, dx, gradients));
}

TEST(LayerBackwardTest, forward_train_refuses_a_cache) {
  MultiHeadAttention layer({.d_in = 6, .d_out = 8, .num_heads = 2, .seed = 1});
  auto cache = KVCache::growing({.batch = 1, .num_kv_heads = 2, .head_dim = 4, .v_dim = 4});
  EXPECT_EQ(error_of([&] {
              layer.forward_train(normal({1, 3, 6}, 1), {.cache = &cache});
            }),
            "MultiHeadAttention: forward_train takes no cache: gradients reach the tokens of x "
            "alone");
}

}  // namespace
}  // namespace cephalo
