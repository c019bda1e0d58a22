#include "cephalo/view/effects_report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "cephalo/effects/attribution.h"
#include "cephalo/model/builtin.h"
#include "cephalo/view/lens_report.h"
#include "cephalo/view/patch_report.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::error_of;

constexpr const char* kText = "Peter Rabbit met Jemima. Peter Rabbit met Jemima. Peter";

class EffectsReportTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_builtin_model()) GTEST_SKIP() << "built without a model";
  }
};

TEST_F(EffectsReportTest, the_five_heads_are_the_largest_changes_and_say_what_was_measured) {
  const TextModel model = builtin_model();
  EffectsReport report = effects_of(look_model(model), kText);
  EXPECT_EQ(report.predicted.token.piece, " Rabbit");
  EXPECT_EQ(report.losses.size(), report.look.tokens.size() - 1);
  report.heads = head_effects(report);
  ASSERT_EQ(report.heads->strongest.size(), 5U);
  const dim_t last = report.pass->tokens() - 1;
  const Attribution parts = attribute_logit(*report.pass, last, report.predicted.token.id);
  double before = std::numeric_limits<double>::infinity();
  for (const HeadInfluence& head : report.heads->strongest) {
    const Dims at{head.place.layer, head.place.head};
    EXPECT_EQ(head.logit_change, report.heads->logit_change.at(at));
    EXPECT_LE(std::abs(head.logit_change), before);
    before = std::abs(head.logit_change);
    EXPECT_NEAR(head.direct, parts.heads.at(at), 1e-4);
    const std::string verb = head.logit_change < 0.0 ? " raises " : " lowers ";
    EXPECT_NE(head.words.find(verb), std::string::npos) << head.words;
    // Only a head that adds to the token itself is said to copy, and from that very token.
    if (head.words.find("copies") != std::string::npos) {
      EXPECT_GT(head.direct, 0.0);
      EXPECT_EQ(report.look.tokens[static_cast<std::size_t>(head.source)].piece, " Rabbit");
    }
  }
}

TEST_F(EffectsReportTest, what_is_stopped_keeps_what_is_done) {
  const TextModel model = builtin_model();
  const EffectsReport report = effects_of(look_model(model), "The cat sat on the mat");
  const HeadEffects some =
      head_effects(report, [](std::size_t done, std::size_t) { return done < 9; });
  EXPECT_GE(some.done, 9U);
  EXPECT_LT(some.done, 32U);
  std::size_t known = 0;
  for (dim_t l = 0; l < 4; ++l) {
    for (dim_t h = 0; h < 8; ++h) known += std::isnan(some.logit_change.at({l, h})) ? 0 : 1;
  }
  EXPECT_EQ(known, some.done);
}

TEST_F(EffectsReportTest, a_text_of_one_token_has_no_loss) {
  const TextModel model = builtin_model();
  EffectsReport report = effects_of(look_model(model), "");
  report.heads = head_effects(report);
  EXPECT_TRUE(std::isnan(report.heads->loss_change.at({0, 0})));
  EXPECT_FALSE(std::isnan(report.heads->logit_change.at({0, 0})));
  EXPECT_EQ(to_json(report).find("NaN"), std::string::npos);
  EXPECT_EQ(to_text(page_of(report), {}).find("nan"), std::string::npos);
}

TEST_F(EffectsReportTest, removing_nothing_changes_nothing) {
  const TextModel model = builtin_model();
  const LookModel seen = look_model(model);
  const EffectsReport report = effects_of(seen, kText);
  const Ablation same =
      ablate(seen, report, {{.layer = 3, .head = 1, .kind = ChangeKind::scale, .factor = 1.0}});
  EXPECT_NEAR(same.logit_change, 0.0, 1e-4);
  EXPECT_NEAR(same.divergence, 0.0, 1e-6);
  ASSERT_EQ(same.next.size(), 5U);
  for (const Ablation::Next& next : same.next) EXPECT_NEAR(next.before, next.after, 1e-5);
}

TEST_F(EffectsReportTest, a_kind_that_heads_do_not_have_is_an_error) {
  const TextModel model = builtin_model();
  const EffectsReport edges = effects_of(look_model(model), kText, {.kind = ChangeKind::hide});
  EXPECT_EQ(error_of([&] { head_effects(edges); }), "L0H0: a head cannot be changed by hide");
  EXPECT_EQ(
      error_of([&] { effects_of(look_model(model), kText, {.kind = ChangeKind::reference_mean}); }),
      "effects: reference-mean needs a reference text, which is empty");
}

TEST_F(EffectsReportTest, the_lens_ends_with_what_the_model_says) {
  const TextModel model = builtin_model();
  const LensReport report = lens_of(look_model(model), kText);
  ASSERT_EQ(report.cells.size(), 5U);
  ASSERT_EQ(report.said.size(), report.subject.tokens.size());
  for (std::size_t i = 0; i < report.said.size(); ++i) {
    EXPECT_EQ(report.cells.back()[i].rank, 0);
    EXPECT_EQ(report.cells.back()[i].top.front().token.id, report.said[i].id);
  }
}

TEST_F(EffectsReportTest, a_patch_needs_counterparts_and_single_tokens) {
  const TextModel model = builtin_model();
  const LookModel seen = look_model(model);
  const PatchOptions options{.answer = " Mary", .wrong = " John"};
  EXPECT_NE(error_of([&] {
              patch_texts(seen, "Peter met Mary", "Peter met", options);
            }).find("clean has 4: \"<|endoftext|>\" \"Peter\" \" met\" \" Mary\"; corrupt has 3"),
            std::string::npos);
  EXPECT_EQ(error_of([&] {
              patch_texts(seen, "Peter met", "Peter met", {.answer = "Mary met", .wrong = " John"});
            }).substr(0, 60),
            "patch: the answer \"Mary met\" must be one token, but it is 3:");
}

}  // namespace
}  // namespace cephalo
