#include "cephalo/effects/attribution.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cephalo/model/builtin.h"
#include "tests/effects/golden_model.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::error_of;
using testing::golden_effects;
using testing::GoldenEffects;

class AttributionTest : public testing::GoldenEffectsTest {};

double sum_of(const Tensor& t) {
  return std::accumulate(t.data_as<double>(), t.data_as<double>() + t.numel(), 0.0);
}

TEST_P(AttributionTest, parts_are_those_of_the_definition) {
  const GoldenEffects c = of();
  const KeptPass text(c.model, c.ids);
  const GptOptions& o = c.model.options();
  for (const auto& wanted : c.golden.at("attribution")) {
    const dim_t position = wanted.at("position");
    const std::int64_t token = wanted.at("token");
    const Attribution found = attribute_logit(text, position, token);
    EXPECT_NEAR(found.token_embedding, wanted.at("token_embedding"), 1e-10);
    EXPECT_NEAR(found.position_embedding, wanted.at("position_embedding"), 1e-10);
    EXPECT_NEAR(found.bias, wanted.at("bias"), 1e-10);
    EXPECT_NEAR(found.logit, c.golden.at("logits").at(position).at(token), 1e-10);
    for (dim_t l = 0; l < o.num_layers; ++l) {
      EXPECT_NEAR(found.out_bias.at({l}), wanted.at("out_bias").at(l), 1e-10);
      EXPECT_NEAR(found.mlp.at({l}), wanted.at("mlp").at(l), 1e-10);
      for (dim_t h = 0; h < o.num_heads; ++h) {
        EXPECT_NEAR(found.heads.at({l, h}), wanted.at("heads").at(l).at(h), 1e-10) << l << h;
      }
    }
    const auto& sources = wanted.at("sources");
    const Tensor by_source =
        attribute_sources(text, sources.at("layer"), sources.at("head"), position, token);
    ASSERT_EQ(by_source.dim(0), position + 1);
    for (dim_t j = 0; j <= position; ++j) {
      EXPECT_NEAR(by_source.at({j}), sources.at("parts").at(j), 1e-10) << j;
    }
  }
}

// What they differ by, over max(1, |logit|); the largest of all positions and some tokens.
double largest_gap(const Gpt& model, const std::vector<std::int64_t>& ids) {
  const KeptPass text(model, ids);
  double largest = 0.0;
  for (dim_t i = 0; i < text.tokens(); ++i) {
    for (std::int64_t token = i % 3; token < model.options().vocab_size;
         token += 1 + model.options().vocab_size / 5) {
      const Attribution found = attribute_logit(text, i, token);
      const double gap = std::abs(found.sum() - found.logit);
      largest = std::max(largest, gap / std::max(1.0, std::abs(found.logit)));
    }
  }
  return largest;
}

TEST_P(AttributionTest, parts_add_up_to_the_logit) {
  const GoldenEffects narrow = of(DType::f32);
  EXPECT_LE(largest_gap(narrow.model, narrow.ids), 1e-5);
  const GoldenEffects wide = of(DType::f64);
  EXPECT_LE(largest_gap(wide.model, wide.ids), 1e-10);
}

TEST(BuiltinAttributionTest, parts_of_a_trained_model_add_up_to_the_logit) {
  const TextModel model = builtin_model();
  const double gap = largest_gap(
      model.gpt, model.encode("Peter Rabbit met Jemima. Peter Rabbit met Jemima. Peter", true));
  testing::report("attribution of the built-in model: parts miss the logit by at most " +
                  std::to_string(gap) + " · max(1, |logit|)");
  EXPECT_LE(gap, 1e-5);
}

TEST_P(AttributionTest, the_logit_is_the_models_own) {
  const GoldenEffects c = of(DType::f32);
  const KeptPass text(c.model, c.ids);
  const Tensor logits = c.model(TensorView(c.ids.data(), {text.tokens()}));
  for (dim_t i = 0; i < text.tokens(); ++i) {
    EXPECT_EQ(attribute_logit(text, i, 3).logit, logits.at({i, 3})) << i;
  }
}

TEST_P(AttributionTest, sources_add_up_to_the_part_of_their_head) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const GoldenEffects c = of(dtype);
    const KeptPass text(c.model, c.ids);
    const GptOptions& o = c.model.options();
    for (const dim_t position : {dim_t{0}, dim_t{6}, text.tokens() - 1}) {
      const Attribution found = attribute_logit(text, position, 2);
      for (dim_t l = 0; l < o.num_layers; ++l) {
        for (dim_t h = 0; h < o.num_heads; ++h) {
          EXPECT_NEAR(sum_of(attribute_sources(text, l, h, position, 2)), found.heads.at({l, h}),
                      dtype == DType::f32 ? 1e-5 : 1e-10)
              << l << h << position;
        }
      }
    }
  }
}

TEST(AttributionErrorsTest, A17_what_is_not_there_is_named) {
  const GoldenEffects c = golden_effects("rotary");
  const KeptPass text(c.model, c.ids);
  EXPECT_EQ(attribute_logit(text, -1, 0).position, text.tokens() - 1);
  EXPECT_EQ(error_of([&] { attribute_logit(text, 11, 0); }),
            "attribution: position 11 is not in [0, 11)");
  EXPECT_EQ(error_of([&] { attribute_logit(text, 0, 29); }),
            "attribution: token 29 is not in [0, 29)");
  EXPECT_EQ(error_of([&] { attribute_sources(text, 2, 0, 0, 0); }),
            "attribution: layer 2 is not in [0, 2)");
  EXPECT_EQ(error_of([&] { attribute_sources(text, 0, -1, 0, 0); }),
            "attribution: head -1 is not in [0, 4)");
}

INSTANTIATE_TEST_SUITE_P(Models, AttributionTest, ::testing::Values("learned", "rotary"));

}  // namespace
}  // namespace cephalo
