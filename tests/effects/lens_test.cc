#include "cephalo/effects/lens.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "cephalo/effects/attribution.h"
#include "tests/effects/golden_model.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::error_of;
using testing::golden_effects;
using testing::GoldenEffects;

const std::pair<const char*, LensNorm> kNorms[] = {
    {"fresh", LensNorm::fresh}, {"frozen", LensNorm::frozen}, {"none", LensNorm::none}};

class LensTest : public testing::GoldenEffectsTest {};

TEST_P(LensTest, rows_are_those_of_the_definition) {
  const GoldenEffects c = of();
  const KeptPass text(c.model, c.ids);
  for (const auto& [name, norm] : kNorms) {
    const auto& wanted = c.golden.at("lens").at(name);
    const Lens lens = logit_lens(text, {.norm = norm, .token = wanted.at("token")});
    ASSERT_EQ(lens.cells.size(), wanted.at("rank").size());
    for (std::size_t row = 0; row < lens.cells.size(); ++row) {
      ASSERT_EQ(lens.cells[row].size(), c.ids.size());
      for (std::size_t i = 0; i < c.ids.size(); ++i) {
        const LensCell& cell = lens.cells[row][i];
        EXPECT_NEAR(cell.probability, wanted.at("probability").at(row).at(i), 1e-10) << name;
        EXPECT_NEAR(cell.entropy, wanted.at("entropy").at(row).at(i), 1e-10) << name;
        EXPECT_EQ(cell.rank, wanted.at("rank").at(row).at(i)) << name;
        EXPECT_EQ(cell.top.at(0).id, wanted.at("likeliest").at(row).at(i)) << name;
        EXPECT_EQ(cell.top.size(), 5U);
      }
    }
  }
}

TEST_P(LensTest, the_last_row_is_what_the_model_says) {
  const GoldenEffects c = of(DType::f32);
  const KeptPass text(c.model, c.ids);
  const Tensor logits = c.model(TensorView(c.ids.data(), {text.tokens()}));
  for (const auto& [name, norm] : kNorms) {
    const Lens lens = logit_lens(text, {.norm = norm, .top = 1});
    for (std::size_t i = 0; i < c.ids.size(); ++i) {
      double sum = 0.0;
      double best = 0.0;
      for (dim_t id = 0; id < logits.dim(1); ++id) {
        const double share = std::exp(logits.at({static_cast<dim_t>(i), id}));
        best = std::max(best, share);
        sum += share;
      }
      const LensCell& cell = lens.cells.back()[i];
      EXPECT_EQ(cell.rank, 0) << name;
      EXPECT_EQ(cell.top.at(0).id, lens.tokens[i]) << name;
      EXPECT_EQ(cell.probability, cell.top.at(0).probability) << name;
      EXPECT_NEAR(cell.probability, best / sum, 1e-12) << name;
    }
  }
}

TEST_P(LensTest, with_a_frozen_norm_logits_grow_by_what_parts_are_given) {
  const GoldenEffects c = of();
  const KeptPass text(c.model, c.ids);
  const dim_t position = text.tokens() - 1;
  // Logits are known but for a constant: two tokens' difference is.
  const auto difference = [&](std::size_t row) {
    const auto log_of = [&](std::int64_t token) {
      const Lens lens = logit_lens(
          text, {.norm = LensNorm::frozen, .top = 0, .positions = {position}, .token = token});
      return std::log(lens.cells[row][0].probability);
    };
    return log_of(4) - log_of(9);
  };
  const Attribution four = attribute_logit(text, position, 4);
  const Attribution nine = attribute_logit(text, position, 9);
  double sum = four.token_embedding + four.position_embedding + four.bias - nine.token_embedding -
               nine.position_embedding - nine.bias;
  for (dim_t l = 0; l <= c.model.options().num_layers; ++l) {
    EXPECT_NEAR(difference(static_cast<std::size_t>(l)), sum, 1e-9) << l;
    if (l == c.model.options().num_layers) break;
    sum += four.mlp.at({l}) - nine.mlp.at({l}) + four.out_bias.at({l}) - nine.out_bias.at({l});
    for (dim_t h = 0; h < c.model.options().num_heads; ++h) {
      sum += four.heads.at({l, h}) - nine.heads.at({l, h});
    }
  }
}

// A vocabulary of which the logits of these tokens do not fit into one block.
TEST(LensBlocksTest, a_position_has_the_same_bits_alone) {
  const Gpt model({.vocab_size = 70000,
                   .context_length = 80,
                   .d_model = 8,
                   .num_heads = 2,
                   .num_layers = 1,
                   .seed = 3});
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < 80; ++i) ids.push_back(i * i * 11);
  const KeptPass text(model, ids);
  const Lens all = logit_lens(text, {.top = 2});
  for (const dim_t position : {0, 29, 30, 79}) {
    const Lens one = logit_lens(text, {.top = 2, .positions = {position}});
    for (std::size_t row = 0; row < 2; ++row) {
      const LensCell& alone = one.cells[row].at(0);
      const LensCell& among = all.cells[row].at(static_cast<std::size_t>(position));
      EXPECT_EQ(alone.probability, among.probability) << position;
      EXPECT_EQ(alone.entropy, among.entropy) << position;
      EXPECT_EQ(alone.top.at(1).id, among.top.at(1).id) << position;
    }
  }
}

TEST(LensErrorsTest, A17_what_is_not_there_is_named) {
  const GoldenEffects c = golden_effects("rotary");
  const KeptPass text(c.model, c.ids);
  EXPECT_EQ(error_of([&] {
              logit_lens(text, {.positions = {0, 11}});
            }),
            "lens: position 11 is not in [0, 11)");
  EXPECT_EQ(error_of([&] { logit_lens(text, {.token = 29}); }), "lens: token 29 is not in [0, 29)");
}

INSTANTIATE_TEST_SUITE_P(Models, LensTest, ::testing::Values("learned", "rotary"));

}  // namespace
}  // namespace cephalo
