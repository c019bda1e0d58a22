#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "cephalo/core/ops.h"
#include "cephalo/core/parallel.h"
#include "cephalo/train/adamw.h"
#include "cephalo/train/clip.h"
#include "cephalo/train/sgd.h"
#include "tests/support/golden.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::error_of;
using testing::golden_difference;
using testing::golden_magnitude;
using testing::normal;
using testing::same_bits;

DType dtype_of(const nlohmann::json& golden) {
  return golden.at("dtype") == "float64" ? DType::f64 : DType::f32;
}

// Each of five steps rounds a number a few times, here and there: 32 roundings of the largest one
// in all.
void expect_near(const nlohmann::json& golden, const TensorView& ours, const std::string& what) {
  const double rounding = ours.dtype() == DType::f64 ? 0x1p-53 : 0x1p-24;
  EXPECT_LE(golden_difference(golden, ours), 32 * rounding * golden_magnitude(golden)) << what;
}

// The gradient of step n of a golden case: each row a tenth of the one before.
Tensor gradient_of(const Shape& shape, int n, DType dtype) {
  Tensor gradient = normal(shape, static_cast<std::uint64_t>(100 + n), dtype);
  for (dim_t row = 0; row < shape[0]; ++row) {
    const double size = Tensor::full({1}, std::pow(10.0, -static_cast<double>(row)), dtype).at({0});
    gradient.mutable_view()[row].copy_from(multiply(gradient[row], size));
  }
  return gradient;
}

// Runs the steps of a golden case; step(parameter, gradient) is one of them.
template <typename Step>
Tensor run_case(const nlohmann::json& golden, Step&& step) {
  const Shape shape{golden.at("shape").at(0), golden.at("shape").at(1)};
  Tensor parameter = normal(shape, 1, dtype_of(golden));
  for (int n = 0; n < golden.at("steps").get<int>(); ++n) {
    step(parameter.mutable_view(), gradient_of(shape, n, dtype_of(golden)));
  }
  expect_near(golden.at("parameter"), parameter, golden.dump().substr(0, 200));
  return parameter;
}

AdamWOptions adamw_options(const nlohmann::json& torch) {
  AdamWOptions options;
  options.learning_rate = torch.value("lr", options.learning_rate);
  options.eps = torch.value("eps", options.eps);
  options.weight_decay = torch.value("weight_decay", options.weight_decay);
  if (torch.contains("betas")) {
    options.beta1 = torch.at("betas").at(0);
    options.beta2 = torch.at("betas").at(1);
  }
  return options;
}

SgdOptions sgd_options(const nlohmann::json& torch) {
  SgdOptions options;
  options.learning_rate = torch.value("lr", options.learning_rate);
  options.momentum = torch.value("momentum", options.momentum);
  options.weight_decay = torch.value("weight_decay", options.weight_decay);
  options.nesterov = torch.value("nesterov", options.nesterov);
  return options;
}

TEST(AdamWTest, five_steps_are_pytorchs) {
  int cases = 0;
  const auto file = testing::read_golden("train.json");
  for (const auto& golden : file.at("cases")) {
    if (golden.at("case") != "adamw") continue;
    ++cases;
    AdamWState state;
    const AdamWOptions options = adamw_options(golden.at("options"));
    run_case(golden, [&](const MutableTensorView& parameter, const TensorView& gradient) {
      adamw_step(parameter, gradient, state, options);
    });
    EXPECT_EQ(state.step, 5);
    expect_near(golden.at("state").at("exp_avg"), state.mean, "mean");
    expect_near(golden.at("state").at("exp_avg_sq"), state.mean_square, "mean square");
  }
  EXPECT_EQ(cases, 8);
}

TEST(SgdTest, five_steps_are_pytorchs) {
  int cases = 0;
  const auto file = testing::read_golden("train.json");
  for (const auto& golden : file.at("cases")) {
    if (golden.at("case") != "sgd") continue;
    ++cases;
    SgdState state;
    const SgdOptions options = sgd_options(golden.at("options"));
    run_case(golden, [&](const MutableTensorView& parameter, const TensorView& gradient) {
      sgd_step(parameter, gradient, state, options);
    });
    EXPECT_EQ(state.direction.numel() > 0, options.momentum > 0.0);
    if (options.momentum > 0.0) {
      expect_near(golden.at("state").at("momentum_buffer"), state.direction, "direction");
    }
  }
  EXPECT_EQ(cases, 8);
}

std::vector<Tensor> gradients_of(const nlohmann::json& golden) {
  std::vector<Tensor> gradients;
  std::uint64_t seed = 1;
  for (const auto& each : golden.at("gradients")) {
    Shape shape;
    for (const auto& dim : each.at("shape")) shape.push_back(dim.get<dim_t>());
    gradients.push_back(normal(shape, seed++, dtype_of(golden)));
  }
  return gradients;
}

std::vector<MutableTensorView> views_of(std::vector<Tensor>& tensors) {
  return {tensors.begin(), tensors.end()};
}

TEST(ClipTest, norms_and_clipped_gradients_are_pytorchs) {
  int cases = 0;
  const auto file = testing::read_golden("train.json");
  for (const auto& golden : file.at("cases")) {
    if (golden.at("case") != "clip") continue;
    ++cases;
    std::vector<Tensor> gradients = gradients_of(golden);
    const double norm = clip_gradient_norm(views_of(gradients), golden.at("max_norm"));
    // PyTorch adds up 12,022 squares in the gradients' own type: about the root of that many
    // roundings, 128 of them.
    const double rounding = dtype_of(golden) == DType::f64 ? 0x1p-46 : 0x1p-17;
    EXPECT_NEAR(norm, golden.at("norm"), rounding * norm);
    for (std::size_t n = 0; n < gradients.size(); ++n) {
      EXPECT_LE(golden_difference(golden.at("gradients").at(n), gradients[n]),
                rounding * golden_magnitude(golden.at("gradients").at(n)));
    }
  }
  EXPECT_EQ(cases, 6);
}

TEST(ClipTest, a_small_norm_changes_no_bit_and_one_that_is_not_finite_neither) {
  std::vector<Tensor> gradients;
  gradients.push_back(normal({30}, 1));
  const Tensor before = normal({30}, 1);
  const double norm = clip_gradient_norm(views_of(gradients), 1e9);
  EXPECT_TRUE(same_bits(gradients[0], before));
  EXPECT_GT(norm, 1.0);
  gradients[0].set({3}, std::numeric_limits<double>::infinity());
  const Tensor infinite = Tensor::copy(gradients[0]);
  EXPECT_TRUE(std::isinf(clip_gradient_norm(views_of(gradients), 1.0)));
  EXPECT_TRUE(same_bits(gradients[0], infinite));
  EXPECT_EQ(clip_gradient_norm({}, 1.0), 0.0);
  EXPECT_EQ(error_of([&] { clip_gradient_norm(views_of(gradients), -1.0); }),
            "clip_gradient_norm: max_norm (-1) must be >= 0");
  gradients.push_back(Tensor::zeros({2}, DType::bf16));
  EXPECT_EQ(error_of([&] { clip_gradient_norm(views_of(gradients), 1.0); }),
            "clip_gradient_norm: a gradient is bfloat16, float32 or float64 is needed");
}

// What one round of clipping and both optimisers leaves behind.
struct Outcome {
  double norm;
  Tensor gradient, by_adamw, by_sgd;
};

// Dense, or with rows and columns of the memory exchanged.
Outcome outcome(bool transposed) {
  const auto tensor = [&](std::uint64_t seed) {
    const Tensor dense = normal({300, 257}, seed);
    return Tensor::copy(transposed ? transpose(dense, 0, 1) : TensorView(dense));
  };
  const auto seen = [&](Tensor& t) {
    const MutableTensorView all = t;
    if (!transposed) return all;
    return MutableTensorView(all.mutable_data(), all.dtype(), {300, 257}, {1, 300});
  };
  Tensor gradient = tensor(2);
  Tensor by_adamw = tensor(1);
  Tensor by_sgd = tensor(1);
  const std::vector<MutableTensorView> gradients = {seen(gradient)};
  const double norm = clip_gradient_norm(gradients, 1.0);
  AdamWState adamw;
  SgdState sgd;
  for (int n = 0; n < 2; ++n) {
    adamw_step(seen(by_adamw), seen(gradient), adamw, {.learning_rate = 0.1});
    sgd_step(seen(by_sgd), seen(gradient), sgd, {.learning_rate = 0.1, .momentum = 0.9});
  }
  return {norm, Tensor::copy(seen(gradient)), Tensor::copy(seen(by_adamw)),
          Tensor::copy(seen(by_sgd))};
}

TEST(OptimisersTest, bits_depend_neither_on_threads_nor_on_strides) {
  const UseThreads one(1);
  const Outcome expected = outcome(false);
  for (const int count : {1, 2, 3, 7, 1000}) {
    const UseThreads limit(count);
    for (const bool transposed : {false, true}) {
      const Outcome found = outcome(transposed);
      EXPECT_EQ(found.norm, expected.norm) << count;
      EXPECT_TRUE(same_bits(found.gradient, expected.gradient)) << count;
      EXPECT_TRUE(same_bits(found.by_adamw, expected.by_adamw)) << count;
      EXPECT_TRUE(same_bits(found.by_sgd, expected.by_sgd)) << count;
    }
  }
}

TEST(OptimisersTest, a_step_writes_its_view_and_nothing_else) {
  Tensor whole = Tensor::full({4, 6}, 1.0);
  const MutableTensorView part = whole.mutable_view().slice(0, 1, 3).slice(1, 2, 5);
  AdamWState state;
  adamw_step(part, Tensor::full({2, 3}, 1.0), state);
  for (dim_t i = 0; i < 4; ++i) {
    for (dim_t k = 0; k < 6; ++k) {
      const bool inside = i >= 1 && i < 3 && k >= 2 && k < 5;
      EXPECT_EQ(whole.at({i, k}) != 1.0, inside) << i << " " << k;
    }
  }
}

TEST(OptimisersTest, errors_name_the_function_the_rule_and_the_numbers) {
  Tensor parameter = normal({2, 3}, 1);
  const Tensor gradient = normal({2, 3}, 2);
  AdamWState adamw;
  SgdState sgd;
  const auto adamw_error = [&](const AdamWOptions& options) {
    return error_of([&] { adamw_step(parameter, gradient, adamw, options); });
  };
  EXPECT_EQ(adamw_error({.learning_rate = -1}), "adamw_step: learning_rate (-1) must be >= 0");
  EXPECT_EQ(adamw_error({.beta1 = 1}), "adamw_step: beta1 (1) must be in [0, 1)");
  EXPECT_EQ(adamw_error({.beta2 = NAN}), "adamw_step: beta2 (nan) must be in [0, 1)");
  EXPECT_EQ(adamw_error({.eps = -1}), "adamw_step: eps (-1) must be >= 0");
  EXPECT_EQ(adamw_error({.weight_decay = -1}), "adamw_step: weight_decay (-1) must be >= 0");
  EXPECT_EQ(adamw.step, 0);
  EXPECT_TRUE(same_bits(parameter, normal({2, 3}, 1)));  // what was refused has changed nothing
  EXPECT_EQ(error_of([&] { sgd_step(parameter, gradient, sgd, {.nesterov = true}); }),
            "sgd_step: nesterov needs a momentum > 0");
  EXPECT_EQ(error_of([&] { sgd_step(parameter, gradient, sgd, {.momentum = -0.5}); }),
            "sgd_step: momentum (-0.5) must be >= 0");
  EXPECT_EQ(error_of([&] { sgd_step(parameter, gradient[0], sgd); }),
            "sgd_step: the gradient is [3], the parameter [2, 3]");
  EXPECT_EQ(error_of([&] {
              adamw_step(parameter, normal({2, 3}, 2, DType::f64), adamw);
            }),
            "adamw_step: the gradient is float64, the parameter float32");
  Tensor half = normal({2, 3}, 1, DType::f16);
  EXPECT_EQ(error_of([&] { adamw_step(half, half, adamw); }),
            "adamw_step: the parameter is float16, float32 or float64 is needed");
  adamw_step(parameter, gradient, adamw);
  Tensor other = normal({3, 2}, 1);
  EXPECT_EQ(error_of([&] { adamw_step(other, other, adamw); }),
            "adamw_step: the state is that of a float32 [2, 3], the parameter is a float32 [3, 2]");
}

}  // namespace
}  // namespace cephalo
