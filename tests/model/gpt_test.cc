#include "cephalo/model/gpt.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "cephalo/attention/gradcheck.h"
#include "cephalo/core/parallel.h"
#include "cephalo/core/random.h"
#include "cephalo/train/loss.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

GptOptions tiny_options() {
  return {.vocab_size = 11,
          .context_length = 9,
          .d_model = 8,
          .num_heads = 2,
          .num_layers = 2,
          .d_mlp = 12,
          .seed = 3};
}

Tensor random_ids(const Shape& shape, dim_t vocab_size, std::uint64_t seed = 1) {
  TorchGenerator generator(seed);
  Tensor ids = Tensor::empty(shape, DType::i64);
  for (dim_t i = 0; i < ids.numel(); ++i) {
    ids.mutable_data_as<std::int64_t>()[i] = generator.randint(0, vocab_size);
  }
  return ids;
}

// The next-token loss of rows whose targets are given.
LogitsLoss loss_of(const Tensor& targets) {
  return [&targets](dim_t first, const MutableTensorView& logits) {
    const TensorView flat(targets.data_as<std::int64_t>(), {targets.numel()});
    return cross_entropy_share(logits, flat.slice(0, first, first + logits.dim(0)), targets.numel(),
                               logits);
  };
}

// Parameters far from those of a new model: biases that are not 0, norms that are not 1.
void scatter(Gpt& model) {
  TorchGenerator generator(77);
  model.update_all([&](std::size_t, const std::string& name, const MutableTensorView& p) {
    const Tensor drawn = generator.randn(p.shape());
    const bool scale = name.find("ln_") != std::string::npos && name.ends_with(".weight");
    for (dim_t i = 0; i < p.dim(0); ++i) {
      for (dim_t k = 0; k < (p.rank() == 2 ? p.dim(1) : 1); ++k) {
        const Dims at = p.rank() == 2 ? Dims{i, k} : Dims{i};
        p.set(at, (scale ? 1.0 : 0.0) + 0.4 * drawn.at(at));
      }
    }
  });
}

struct GradientCase {
  const char* name;
  GptOptions options;
};

class GptGradientTest : public ::testing::TestWithParam<GradientCase> {};

std::vector<GradientCase> gradient_cases() {
  std::vector<GradientCase> cases;
  GptOptions o = tiny_options();
  o.dtype = DType::f64;
  cases.push_back({"learned_tied", o});
  o.dropout = 0.3;
  cases.push_back({"dropout", o});
  o.dropout = 0.0;
  o.tied_head = false;
  o.qkv_bias = false;
  o.positions = Positions::rotary;
  cases.push_back({"rotary_separate_head", o});
  o.activation = Activation::gelu_erf;
  cases.push_back({"gelu_erf", o});
  return cases;
}

TEST_P(GptGradientTest, every_parameter_has_the_gradient_of_central_differences) {
  Gpt model(GetParam().options);
  scatter(model);
  const Tensor ids = random_ids({2, 7}, 11);
  const Tensor targets = random_ids({2, 7}, 11, 2);
  GptGradients gradients(model);
  PassOptions pass{.call = 5};
  model.train_pass(ids, loss_of(targets), gradients, pass);
  GptGradients unused(model);
  GradcheckReport report;
  model.update_all([&](std::size_t index, const std::string& name, const MutableTensorView& p) {
    report.tensors.push_back(check_gradient(
        name, [&] { return model.train_pass(ids, loss_of(targets), unused, pass); }, p,
        gradients.tensors()[index]));
  });
  EXPECT_EQ(report.tensors.size(), model.parameters().size());
  EXPECT_TRUE(report.passed()) << report.to_string();
}

INSTANTIATE_TEST_SUITE_P(Gpt, GptGradientTest, ::testing::ValuesIn(gradient_cases()),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace cephalo
