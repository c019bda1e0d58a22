#include "cephalo/train/gradcheck.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "cephalo/attention/attend_backward.h"
#include "cephalo/attention/plan.h"
#include "cephalo/core/format.h"
#include "cephalo/core/random.h"
#include "cephalo/core/views.h"
#include "cephalo/learn/ladder.h"
#include "tests/support/backward_engines.h"
#include "tests/support/bounds.h"
#include "tests/support/mask_spec.h"
#include "tests/support/random_config.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::error_of;
using testing::normal;
using testing::same_bits;

// x: [tokens, dim] of any strides; loss = Σ x³, gradient 3 x².
struct Cubes {
  explicit Cubes(const MutableTensorView& at) : x(at), gradient(Tensor::copy(at)) {
    for (dim_t n = 0; n < x.numel(); ++n) {
      double& g = gradient.mutable_data_as<double>()[n];
      g = 3.0 * g * g;
    }
  }
  double loss() const {
    const Tensor dense = Tensor::copy(x);
    double sum = 0.0;
    for (dim_t n = 0; n < dense.numel(); ++n) sum += std::pow(dense.data_as<double>()[n], 3.0);
    return sum;
  }
  GradcheckTensor check(const GradcheckOptions& options) const {
    return check_gradient(
        "x", [this] { return loss(); }, x, gradient, options);
  }
  MutableTensorView x;
  Tensor gradient;
};

TEST(GradcheckTest, a_right_gradient_passes_and_the_parameter_is_as_it_was) {
  Tensor memory = normal({4, 3, 2}, 1, DType::f64);
  const Tensor before = Tensor::copy(memory);
  const Cubes cubes(memory.mutable_view().select(2, 1));
  dim_t told = 0;
  const GradcheckTensor all =
      cubes.check({.progress = [&](const std::string& name, dim_t done, dim_t count) {
        EXPECT_EQ(name, "x");
        EXPECT_EQ(done, told++);
        EXPECT_EQ(count, 12);
      }});
  EXPECT_TRUE(all.passed());
  EXPECT_EQ(all.checked, 12);
  EXPECT_EQ(told, 12);
  EXPECT_GT(all.worst.error, 0.0);
  EXPECT_LE(all.worst.error, all.worst.allowed);
  const GradcheckTensor few = cubes.check({.projections = 5});
  EXPECT_TRUE(few.passed());
  EXPECT_EQ(few.checked, 5);
  EXPECT_TRUE(same_bits(memory, before));
}

TEST(GradcheckTest, one_wrong_element_is_found_and_named) {
  Tensor x = normal({4, 3}, 1, DType::f64);
  Cubes cubes(x);
  const double right = cubes.gradient.at({2, 1});
  cubes.gradient.set({2, 1}, right + 0.01 * std::abs(right) + 0.001);
  const GradcheckTensor all = cubes.check({});
  EXPECT_FALSE(all.passed());
  EXPECT_EQ(all.failed, 1);
  EXPECT_EQ(all.worst.index, (Dims{2, 1}));
  EXPECT_NEAR(all.worst.numeric, right, 1e-6);
  EXPECT_EQ(all.worst.analytic, cubes.gradient.at({2, 1}));
  // A direction may hardly point there; of several at least one does.
  EXPECT_FALSE(cubes.check({.projections = 8}).passed());
}

TEST(GradcheckTest, every_wrong_gradient_of_attention_is_found) {
  const Tensor q = normal({1, 2, 3, 4}, 1, DType::f64);
  AttendResult r = attend(q, q, q, causal(), {.return_lse = true, .engine = Engine::reference});
  const Tensor dcontext = normal(r.context.shape(), 2, DType::f64);
  const AttendGradients g = attend_backward({r.context, r.lse, dcontext}, q, q, q, causal(),
                                            {.engine = Engine::reference});
  Tensor k = Tensor::copy(q);
  const auto loss = [&] {
    const Tensor context = attend(q, k, q, causal(), {.engine = Engine::reference}).context;
    double sum = 0.0;
    for (dim_t n = 0; n < context.numel(); ++n) {
      sum += context.data_as<double>()[n] * dcontext.data_as<double>()[n];
    }
    return sum;
  };
  EXPECT_TRUE(check_gradient("k", loss, k, g.dk).passed());
  EXPECT_FALSE(check_gradient("k", loss, k, g.dq).passed());
  Tensor wrong = Tensor::copy(g.dk);
  for (dim_t n = 0; n < wrong.numel(); ++n) {
    double& value = wrong.mutable_data_as<double>()[n];
    const double right = value;
    value += 1e-3;
    EXPECT_EQ(check_gradient("k", loss, k, wrong).failed, 1) << n;
    value = right;
  }
}

TEST(GradcheckTest, a_loss_or_gradient_that_is_no_number_fails) {
  Tensor x = Tensor::full({2}, 1.0, DType::f64);
  const Tensor zero = Tensor::zeros({2}, DType::f64);
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  for (const int projections : {0, 3}) {
    const GradcheckOptions options{.projections = projections};
    EXPECT_FALSE(check_gradient(
                     "x", [&] { return kNan; }, x, zero, options)
                     .passed());
    EXPECT_FALSE(check_gradient("x", [&] { return 1 / (x.at({0}) - 1); }, x, zero,
                                {.eps = 1e-320, .projections = projections})
                     .passed());
    Tensor gradient = Tensor::zeros({2}, DType::f64);
    gradient.set({1}, kNan);
    const GradcheckTensor found = check_gradient(
        "x", [] { return 0.0; }, x, gradient, options);
    EXPECT_EQ(found.failed, projections == 0 ? 1 : 3);
    EXPECT_EQ(found.worst.index, projections == 0 ? Dims{1} : Dims{0});
  }
}

TEST(GradcheckTest, a_loss_that_throws_leaves_the_parameter_as_it_was) {
  Tensor x = normal({3}, 1, DType::f64);
  const Tensor before = Tensor::copy(x);
  const Tensor gradient = Tensor::zeros({3}, DType::f64);
  const auto loss = []() -> double { throw std::runtime_error("no loss today"); };
  for (const int projections : {0, 3}) {
    EXPECT_EQ(
        error_of([&] { check_gradient("x", loss, x, gradient, {.projections = projections}); }),
        "no loss today");
    EXPECT_TRUE(same_bits(x, before));
  }
}

TEST(GradcheckTest, wrong_arguments_are_named) {
  Tensor x = normal({3}, 1, DType::f64);
  const Tensor gradient = Tensor::zeros({2}, DType::f64);
  const auto loss = [] { return 0.0; };
  EXPECT_EQ(error_of([&] { check_gradient("x", loss, x, gradient); }),
            "gradcheck: x is [3], its gradient [2]");
  Tensor narrow = normal({2}, 1);
  EXPECT_EQ(error_of([&] { check_gradient("x", loss, narrow, gradient); }),
            "gradcheck: x is float32, float64 is needed");
  EXPECT_EQ(error_of([&] { gradcheck(narrow, narrow, narrow, {}, {}, {.eps = 0.0}); }),
            "gradcheck: eps (0) must be > 0");
  EXPECT_EQ(error_of([&] { gradcheck(narrow, narrow, narrow, {}, {}, {.rtol = -1.0}); }),
            "gradcheck: atol (1e-05) and rtol (-1) must be >= 0");
  EXPECT_EQ(error_of([&] { gradcheck(narrow, narrow, narrow, {}, {}, {.projections = -1}); }),
            "gradcheck: projections (-1) must be >= 0");
}

TEST(GradcheckTest, a_report_is_a_table_with_a_line_for_each_tensor) {
  const Tensor q = normal({2, 3, 4}, 1);
  const Tensor added = normal({3, 3}, 2);
  const Mask mask = bias(added) & bias(added);
  const GradcheckReport report = gradcheck(q, q, q, mask, {.engine = Engine::reference});
  ASSERT_EQ(report.tensors.size(), 5U);
  EXPECT_EQ(report.tensors[0].checked, q.numel());
  EXPECT_EQ(report.tensors[4].name, "bias[1]");
  const std::string text = report.to_string();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 6);
  EXPECT_EQ(text.find("tensor "), 0U);
}

// --- a layer ------------------------------------------------------------------------------------

std::vector<std::string> names_of(const GradcheckReport& report) {
  std::vector<std::string> names;
  for (const GradcheckTensor& t : report.tensors) names.push_back(t.name);
  return names;
}

TEST(GradcheckTest, a_layer_is_checked_in_float64_parameter_by_parameter) {
  const MultiHeadAttention layer({.d_in = 6,
                                  .d_out = 8,
                                  .dropout = 0.3,
                                  .num_heads = 4,
                                  .qkv_bias = true,
                                  .num_kv_heads = 2,
                                  .d_kv = 5,
                                  .causal = false,
                                  .rotary = Rotary{},
                                  .seed = 1});
  const Tensor before = Tensor::copy(layer.parameter("W_value.weight"));
  const Tensor x = normal({2, 3, 6}, 1), kv = normal({2, 4, 5}, 2);
  const TensorView kv_view = kv;
  for (const Engine engine : testing::kBackwardEngines) {
    const CallOptions call{.kv = &kv_view, .mask = window(2, 1), .engine = engine};
    const GradcheckReport report = gradcheck(layer, x, call);
    EXPECT_TRUE(report.passed()) << report.to_string();
    EXPECT_EQ(names_of(report),
              (std::vector<std::string>{"x", "kv", "W_query.weight", "W_query.bias", "W_key.weight",
                                        "W_key.bias", "W_value.weight", "W_value.bias",
                                        "out_proj.weight", "out_proj.bias"}));
    for (const GradcheckTensor& t : report.tensors) {
      const dim_t elements = t.name == "x"    ? x.numel()
                             : t.name == "kv" ? kv.numel()
                                              : layer.parameter(t.name).numel();
      EXPECT_EQ(t.checked, elements) << t.name;
      EXPECT_GT(t.worst.error, 0.0) << t.name;
    }
    EXPECT_EQ(gradcheck(layer, x, call, {.projections = 2}).tensors[3].checked, 2);
  }
  EXPECT_TRUE(same_bits(layer.parameter("W_value.weight"), before));
  EXPECT_EQ(layer.version(), 0U);
}

TEST(GradcheckTest, a_layer_is_checked_in_its_mode_and_form) {
  TorchGenerator generator(4);
  HeadWrapper rung_4({.d_in = 4,
                      .d_out = 3,
                      .context_length = 6,
                      .dropout = 0.5,
                      .num_heads = 2,
                      .seed = 5,
                      .dropout_stream = DropoutStream::torch});
  const Tensor x = normal({2, 5, 4}, 1);
  const GradcheckReport training = gradcheck(rung_4, x, {.generator = &generator});
  EXPECT_TRUE(training.passed()) << training.to_string();
  EXPECT_EQ(training.tensors[1].name, "heads.0.W_query.weight");
  EXPECT_EQ(generator.draws(), 0U);
  rung_4.eval();
  const GradcheckReport eval = gradcheck(rung_4, x);  // needs no generator
  EXPECT_TRUE(eval.passed()) << eval.to_string();
  EXPECT_NE(eval.tensors[0].worst.analytic, training.tensors[0].worst.analytic);
  const FastMultiHeadAttention rung_7({.d_model = 6, .num_heads = 3, .seed = 2});
  const GradcheckReport fused = gradcheck(rung_7, normal({4, 6}, 1), {.mask = causal()});
  EXPECT_TRUE(fused.passed()) << fused.to_string();
  EXPECT_EQ(fused.tensors[1].name, "qkv_proj.weight");
}

TEST(GradcheckTest, what_a_layer_refuses_is_refused_here) {
  const MultiHeadAttention layer({.d_in = 4, .d_out = 4, .context_length = 3, .seed = 1});
  EXPECT_EQ(error_of([&] {
              gradcheck(layer, normal({5, 4}, 1));
            }),
            "MultiHeadAttention: tokens (5) exceed context_length (3)");
  EXPECT_EQ(error_of([&] {
              gradcheck(layer, normal({2, 4}, 1), {}, {.eps = -1.0});
            }),
            "gradcheck: eps (-1) must be > 0");
}

// --- configurations that nobody thought of -------------------------------------------------------

class GradcheckEnginesTest : public ::testing::TestWithParam<Engine> {};
INSTANTIATE_TEST_SUITE_P(Engines, GradcheckEnginesTest,
                         ::testing::ValuesIn(testing::kBackwardEngines),
                         [](const auto& engine) { return std::string(name(engine.param)); });

struct Config {
  MaskExtent extent;
  dim_t num_kv_heads, head_dim, v_dim;
  std::vector<std::string> parts;
  Shape bias_shape;  // of a second bias; rank 0: none
  AttendOptions options;
};

Config random_config(TorchGenerator& generator) {
  Config c;
  c.num_kv_heads = generator.randint(1, 3);
  const std::int64_t longest = generator.keeps(0.1) ? 80 : 14;  // some over several tiles
  c.extent = {generator.randint(1, 3), c.num_kv_heads * generator.randint(1, 4),
              generator.randint(1, longest), generator.randint(1, longest)};
  c.head_dim = generator.randint(1, 18);
  c.v_dim = generator.randint(1, 18);
  c.parts = testing::random_mask_parts(generator);
  if (generator.keeps(0.4)) {
    const auto or_one = [&](dim_t dim) { return generator.keeps(0.5) ? dim : 1; };
    const MaskExtent& e = c.extent;
    c.bias_shape = {or_one(e.batch), or_one(e.num_heads), or_one(e.q_tokens), or_one(e.kv_tokens)};
  }
  if (generator.keeps(0.3)) c.options.softcap = 0.5 + 5.0 * generator.uniform53();
  if (generator.keeps(0.3)) c.options.scale = 2.0 * generator.uniform53() - 0.5;
  if (generator.keeps(0.3)) c.options.dropout = 0.9 * generator.uniform53();
  c.options.seed = generator.random64();
  c.options.threads = static_cast<int>(generator.randint(1, 3));
  return c;
}

std::string describe(const Config& c, const std::string& mask) {
  return format_text(
      "batch {} heads {}/{} tokens {}/{} width {}/{} mask '{}' bias {} softcap {} scale {} dropout "
      "{}",
      c.extent.batch, c.extent.num_heads, c.num_kv_heads, c.extent.q_tokens, c.extent.kv_tokens,
      c.head_dim, c.v_dim, mask, to_string(c.bias_shape), c.options.softcap.value_or(0.0),
      c.options.scale.value_or(0.0), c.options.dropout);
}

TEST_P(GradcheckEnginesTest, random_configurations_agree_with_central_differences) {
  const int count = testing::rounds(500);
  double largest = 0.0;  // error beside what is allowed
  for (int number = 0; number < count; ++number) {
    TorchGenerator generator(static_cast<std::uint64_t>(number));
    Config c = random_config(generator);
    c.options.engine = GetParam();
    TorchGenerator draws(generator.random64());
    if (GetParam() == Engine::reference && generator.keeps(0.3)) {  // the fused engine refuses
      c.options.dropout_stream =
          generator.keeps(0.5) ? DropoutStream::torch : DropoutStream::torch_mkl;
      c.options.generator = &draws;
    }
    const MaskExtent& e = c.extent;
    const testing::MaskSpec spec = testing::make_mask_spec(c.parts, e, generator);
    const Tensor q = generator.randn({e.batch, e.num_heads, e.q_tokens, c.head_dim}, DType::f64);
    const Tensor k =
        generator.randn({e.batch, c.num_kv_heads, e.kv_tokens, c.head_dim}, DType::f64);
    const Tensor v = generator.randn({e.batch, c.num_kv_heads, e.kv_tokens, c.v_dim}, DType::f64);
    const Tensor added = generator.randn(c.bias_shape, DType::f64);
    const Mask mask = c.bias_shape.rank() > 0 ? spec.mask & bias(added) : spec.mask;
    const GradcheckReport report =
        gradcheck(q, k, v, mask, c.options, {.projections = 3, .seed = generator.random64()});
    ASSERT_TRUE(report.passed()) << "configuration " << number << ": " << describe(c, spec.name)
                                 << "\n"
                                 << report.to_string();
    for (const GradcheckTensor& t : report.tensors) {
      largest = std::max(largest, t.worst.error / t.worst.allowed);
    }
  }
  testing::report(
      format_text("{}: gradients of {} random configurations, at most {:.1e} of what is "
                  "allowed from central differences",
                  name(GetParam()), count, largest));
}

}  // namespace
}  // namespace cephalo
