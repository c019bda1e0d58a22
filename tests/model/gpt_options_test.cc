// The one list of fields: whatever follows from it keeps every one of them.
#include "cephalo/model/gpt_options.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "cephalo/model/gpt_config.h"
#include "cephalo/model/gpt_options_json.h"
#include "tests/support/tensors.h"
#include "tests/support/tiny_gpt.h"

namespace cephalo {
namespace {

using testing::error_of;

// Every field other than it would be unsaid.
GptOptions unusual() {
  return {.vocab_size = 11,
          .context_length = 9,
          .d_model = 24,
          .num_heads = 6,
          .num_kv_heads = 3,
          .num_layers = 2,
          .d_mlp = 20,
          .dropout = 0.25,
          .qkv_bias = false,
          .tied_head = false,
          .positions = PositionKind::rotary,
          .rotary = {.interleaved = true, .base = 500.0},
          .activation = Activation::gelu_erf,
          .norm_epsilon = 1e-3,
          .seed = 77,
          .dtype = DType::f64};
}

Json as_read(const Json& json) {
  return parse_json(json.dump(), "test");
}

TEST(GptOptionsTest, each_field_is_visited_once) {
  std::set<std::string> names;
  int visited = 0;
  const GptOptions options = unusual();
  for_fields(options, [&](const OptionField& field, const auto&) {
    names.insert(field.name);
    ++visited;
  });
  EXPECT_EQ(visited, 16);
  EXPECT_EQ(names.size(), 16U);
}

TEST(GptOptionsTest, json_keeps_every_field) {
  const Json json = to_json(unusual());
  const Json unsaid = to_json(GptOptions{});
  EXPECT_EQ(json.members().size(), 17U);  // rotary is two
  for (const auto& [key, value] : json.members()) {
    EXPECT_NE(value.dump(), unsaid.at(key).dump()) << key;
  }
  const GptOptions read = gpt_options_from_json(as_read(json), "state", 1 << 20);
  EXPECT_EQ(to_json(read).dump(), json.dump());
}

TEST(GptOptionsTest, json_of_runs_before_there_were_shared_heads_has_none) {
  Json json = as_read(to_json(unusual()));
  json.erase("num_kv_heads");
  const GptOptions read = gpt_options_from_json(json, "state", 1 << 20);
  EXPECT_EQ(read.num_kv_heads, 0);
  EXPECT_EQ(checked_options(read, "test").num_kv_heads, 6);
  json.erase("num_heads");
  EXPECT_EQ(error_of([&] { gpt_options_from_json(json, "state", 1 << 20); }),
            "state: num_heads: is missing");
}

// A seed is not a file's to say, and the type is the reader's choice.
TEST(GptOptionsTest, config_json_keeps_every_other_field) {
  GptOptions options = unusual();
  const std::string text = gpt_config_json({options, {}, {}, false, {}}, DType::f32);
  const GptOptions read = parse_gpt_config(text, "config.json").options;
  options.seed.reset();
  options.dtype = DType::f32;
  EXPECT_EQ(to_json(read).dump(), to_json(options).dump());
}

TEST(GptOptionsTest, wrong_values_are_named_with_their_rule) {
  const auto error_with = [](const auto& change) {
    GptOptions options = unusual();
    change(options);
    return error_of([&] { checked_options(options, "Gpt"); });
  };
  EXPECT_EQ(error_with([](GptOptions& o) { o.num_kv_heads = 4; }),
            "Gpt: num_heads (6) must be a multiple of num_kv_heads (4)");
  EXPECT_EQ(error_with([](GptOptions& o) { o.num_kv_heads = -1; }),
            "Gpt: num_kv_heads (-1) must be > 0, or 0 for num_heads");
  EXPECT_EQ(error_with([](GptOptions& o) { o.d_mlp = -1; }),
            "Gpt: d_mlp (-1) must be > 0, or 0 for 4 · d_model");
  EXPECT_EQ(error_with([](GptOptions& o) { o.norm_epsilon = 0.0; }),
            "Gpt: norm_epsilon (0) must be > 0 and finite");
  EXPECT_EQ(error_with([](GptOptions& o) { o.dtype = DType::bf16; }),
            "Gpt: parameters cannot be bfloat16; float32 or float64 is needed");
  EXPECT_EQ(error_with([](GptOptions&) {}), "");
}

TEST(GptOptionsTest, config_json_with_heads_that_do_not_divide_is_refused) {
  std::string text = gpt_config_json({unusual(), {}, {}, false, {}}, DType::f32);
  const std::string key = "\"num_kv_heads\": 3";
  text.replace(text.find(key), key.size(), "\"num_kv_heads\": 4");
  EXPECT_EQ(error_of([&] { parse_gpt_config(text, "config.json"); }),
            "config.json: n_head (6) must be a multiple of num_kv_heads (4)");
}

}  // namespace
}  // namespace cephalo
