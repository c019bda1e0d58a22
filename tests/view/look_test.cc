#include "cephalo/view/look.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "cephalo/model/builtin.h"
#include "cephalo/view/look_json.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::error_of;

constexpr const char* kText = "The cat sat on the mat. The cat";

class LookTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_builtin_model()) GTEST_SKIP() << "built without a model";
  }
};

TEST_F(LookTest, one_call_reports_tokens_heads_and_what_comes_next) {
  const TextModel model = builtin_model();
  const LookReport report = look_at(look_model(model), kText, {.top = 3});
  EXPECT_EQ(report.text, kText);
  EXPECT_TRUE(report.begun);
  ASSERT_EQ(report.tokens.size(), model.encode(kText, true).size());
  EXPECT_EQ(report.tokens[0].label, "<|endoftext|>");
  EXPECT_EQ(report.tokens[2].piece, " cat");
  EXPECT_EQ(report.tokens[2].label, "cat");
  EXPECT_EQ(std::ssize(report.heads), report.num_layers() * report.num_heads());
  EXPECT_EQ(report.at({1, 2}).layer, 1);
  EXPECT_EQ(report.at({1, 2}).head, 2);
  ASSERT_EQ(report.predictions.size(), 3U);
  EXPECT_EQ(report.predictions[0].token.id, report.recording->predictions(1)[0].id);
  EXPECT_EQ(error_of([&] {
              static_cast<void>(report.at({99, 0}));
            }).substr(0, 38),
            "look: there is no layer 99 head 0; the");
}

TEST_F(LookTest, a_probe_serves_many_texts) {
  const TextModel model = builtin_model();
  const LookModel seen = look_model(model);
  const LookProbe probe = probe_for_look(seen);
  const LookReport once = look_at(seen, kText, probe);
  const LookReport anew = look_at(seen, kText);
  ASSERT_TRUE(once.probe && anew.probe);
  EXPECT_EQ(once.probe->length, 50);
  for (std::size_t h = 0; h < once.heads.size(); ++h) {
    EXPECT_EQ(once.heads[h].probe->induction.value, anew.heads[h].probe->induction.value);
  }
}

TEST_F(LookTest, heads_to_show_are_different_ones_and_as_many_as_there_is_room_for) {
  const TextModel model = builtin_model();
  const LookReport report = look_at(look_model(model), kText);
  for (const std::size_t most : {std::size_t{1}, std::size_t{4}, std::size_t{1000}}) {
    const auto shown = heads_to_show(report, most);
    EXPECT_EQ(shown.size(), std::min(most, report.heads.size()));
    EXPECT_EQ(std::set(shown.begin(), shown.end()).size(), shown.size());
  }
}

TEST_F(LookTest, json_has_what_the_report_has) {
  const TextModel model = builtin_model();
  const LookReport report = look_at(look_model(model), kText);
  const auto json = nlohmann::json::parse(to_json(report, {{0, 1}}));
  EXPECT_EQ(json["tokens"].size(), report.tokens.size());
  EXPECT_EQ(json["tokens"][2]["piece"], "Ġcat");
  EXPECT_EQ(json["heads"].size(), report.heads.size());
  EXPECT_EQ(json["probe"]["seed"], 123);
  EXPECT_FALSE(json["heads"][0].contains("weights"));
  EXPECT_EQ(json["heads"][1]["weights"].size(), report.tokens.size());
  EXPECT_EQ(json["heads"][1]["weights"][3].size(), 4U);
}

TEST_F(LookTest, a_text_that_cannot_be_looked_at_is_refused_by_what_is_wrong_with_it) {
  const TextModel model = builtin_model();
  EXPECT_EQ(error_of([&] { static_cast<void>(look_at(look_model(model), "", {.begin = false})); }),
            "look: the text is empty, and no token was prepended");
  const std::string text = error_of([&] {
    std::string pages;
    for (int k = 0; k < 2000; ++k) pages += "word ";
    static_cast<void>(look_at(look_model(model), pages));
  });
  EXPECT_NE(text.find("(context_length "), std::string::npos) << text;
}

}  // namespace
}  // namespace cephalo
