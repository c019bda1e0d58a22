#include "cephalo/view/report_head.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cephalo/model/builtin.h"

namespace cephalo {
namespace {

class ReportHeadTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_builtin_model()) GTEST_SKIP() << "built without a model";
  }
};

TEST_F(ReportHeadTest, names_the_model_and_every_token) {
  const TextModel model = builtin_model();
  const LookModel seen = look_model(model);
  const std::vector<LookToken> tokens = look_tokens(seen, look_ids(seen, "The cat", true));
  const auto head =
      nlohmann::json::parse(report_head("cephalo.trace/1", seen, tokens, true).dump());
  EXPECT_EQ(head["schema"], "cephalo.trace/1");
  EXPECT_EQ(head["began"], true);
  EXPECT_EQ(head["model"]["name"], builtin_model_name());
  EXPECT_EQ(head["model"]["dtype"], "float32");
  EXPECT_EQ(head["model"]["num_layers"], model.gpt.options().num_layers);
  EXPECT_EQ(head["model"]["num_heads"], model.gpt.options().num_heads);
  ASSERT_EQ(head["tokens"].size(), 3U);
  EXPECT_EQ(head["tokens"][2]["i"], 2);
  EXPECT_EQ(head["tokens"][2]["id"], model.encode("The cat", true)[2]);
  EXPECT_EQ(head["tokens"][2]["piece"], "Ġcat");
  EXPECT_EQ(head["tokens"][2]["text"], " cat");
}

TEST(ReportTokensTest, half_a_character_is_written_as_its_piece) {
  const std::vector<LookToken> tokens{{200, "\xC3", "\\xC3"}};
  const std::string json = tokens_json(tokens).dump({.replace = true});
  const auto read = nlohmann::json::parse(json);
  EXPECT_EQ(read[0]["piece"], "Ã");  // the byte's own character
  EXPECT_EQ(read[0]["text"], "\uFFFD");
}

TEST_F(ReportHeadTest, the_hash_is_of_the_numbers) {
  TextModel model = builtin_model();
  const std::string before = parameters_sha256(model.gpt);
  EXPECT_EQ(before.size(), 64U);
  EXPECT_EQ(parameters_sha256(builtin_model().gpt), before);
  model.gpt.prepare();  // lays parameters out, and changes none
  EXPECT_EQ(parameters_sha256(model.gpt), before);
  const std::string name = model.gpt.parameters().back().name;
  Tensor changed = Tensor::copy(model.gpt.parameter(name));
  changed.mutable_data_as<float>()[0] += 1.0F;
  model.gpt.update(name, changed);
  EXPECT_NE(parameters_sha256(model.gpt), before);
}

}  // namespace
}  // namespace cephalo
