// What a recorded page keeps is enough for the page's engine to say what the recording says.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <span>
#include <string>

#include "cephalo/core/random.h"
#include "cephalo/io/json.h"
#include "cephalo/io/safetensors.h"
#include "cephalo/model/builtin.h"
#include "cephalo/view/page.h"
#include "tests/support/tensors.h"
#include "web/engine/recorded.h"

namespace cephalo {
namespace {

using page::RecordedPass;
using testing::error_of;

constexpr const char* kText = "The cat sat on the mat. The cat sat on the rug, and the dog saw it.";

TextModel drawn_model(const GptOptions& given) {
  GptOptions options = given;
  options.vocab_size = 4096;
  options.context_length = 128;
  if (options.d_model == 0) options.d_model = 32;
  options.num_heads = 4;
  options.num_layers = 2;
  options.seed = 7;
  TextModel model{"drawn", Gpt(options), {}, builtin_tokenizer()};
  // Large enough for heads to differ, and biases that are not 0.
  TorchGenerator generator(11);
  model.gpt.update_all([&](std::size_t, const std::string& name, const MutableTensorView& p) {
    const Tensor drawn = generator.randn(p.shape());
    Tensor scaled = Tensor::copy(p, DType::f32);
    auto* to = scaled.mutable_data_as<float>();
    const auto* from = drawn.data_as<float>();
    const float size = name.find("attn") == std::string::npos ? 0.05F : 0.4F;
    for (dim_t n = 0; n < p.numel(); ++n) to[n] += size * from[n];
    p.copy_from(scaled);
  });
  return model;
}

std::string decoded(const std::string& html, const std::string& id) {
  const std::string mark = "id=\"" + id + "\">";
  const std::size_t begin = html.find(mark) + mark.size();
  const std::string base64 = html.substr(begin, html.find('<', begin) - begin);
  const std::string alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  for (std::size_t n = 0; n < base64.size(); n += 4) {
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 4; ++k) {
      const std::size_t digit = alphabet.find(base64[n + k]);
      group = group << 6U | static_cast<std::uint32_t>(digit == std::string::npos ? 0 : digit);
    }
    for (int shift = 16; shift >= 0; shift -= 8) bytes += static_cast<char>(group >> shift & 0xFFU);
  }
  while (!base64.empty() &&
         bytes.size() > base64.size() / 4 * 3 - static_cast<std::size_t>(std::count(
                                                    base64.end() - 2, base64.end(), '='))) {
    bytes.pop_back();
  }
  return bytes;
}

// bytes: must live as long
SafetensorsFile file_of(const std::string& bytes) {
  return SafetensorsFile(
      InputFile("recording", std::as_bytes(std::span(bytes.data(), bytes.size()))));
}

Json data_of(const std::string& html) {
  const std::string mark = "id=\"page-data\">";
  const std::size_t begin = html.find(mark) + mark.size();
  return parse_json(html.substr(begin, html.find("</script>", begin) - begin), "data");
}

class RecordedPage : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_builtin_model()) GTEST_SKIP() << "built without a model";
  }

  // Every weight that the page's engine makes against the recording's.
  static void expect_equal_weights(const LookReport& report, const RecordedPlan& plan) {
    const std::string file = decoded(recorded_page_html(report, plan), "recording");
    RecordedPass pass(std::as_bytes(std::span(file.data(), file.size())));
    ASSERT_EQ(pass.tokens(), report.recording->tokens());
    for (const HeadReport& head : report.heads) {
      const bool kept = plan.form != RecordedForm::partly ||
                        std::any_of(plan.full.begin(), plan.full.end(), [&](const HeadPlace& p) {
                          return p.layer == head.layer && p.head == head.head;
                        });
      if (!kept) continue;
      const Tensor native = report.recording->weights(head.layer, {.heads = {head.head}});
      const Tensor made = pass.weights(head.layer, head.head, 0, pass.tokens());
      EXPECT_LE(testing::largest_difference(made, native), 1e-5)
          << "layer " << head.layer << " head " << head.head;
    }
  }
};

TEST_F(RecordedPage, weights_from_inputs_equal_the_recordings_whatever_the_positions_and_sharing) {
  const std::array<GptOptions, 4> kinds = {
      GptOptions{}, GptOptions{.qkv_bias = false, .positions = PositionKind::rotary},
      GptOptions{.num_kv_heads = 2,
                 .positions = PositionKind::rotary,
                 .rotary = {.interleaved = true, .base = 500.0}},
      GptOptions{.num_kv_heads = 1}};
  for (const GptOptions& kind : kinds) {
    const TextModel model = drawn_model(kind);
    const LookReport report = look_at(look_model(model), kText);
    for (const RecordedForm form : {RecordedForm::inputs, RecordedForm::heads}) {
      expect_equal_weights(report, {.form = form});
    }
    expect_equal_weights(
        report, {.form = RecordedForm::partly, .full = {{0, 1}, {1, 0}, {1, 3}}, .pooled = true});
  }
}

TEST_F(RecordedPage, a_short_text_keeps_q_and_k_and_a_long_one_what_they_are_made_from) {
  const TextModel model = drawn_model({});
  std::string words;
  for (int n = 0; n < 100; ++n) words += n % 2 == 0 ? " cat" : " dog";
  const LookReport short_report = look_at(look_model(model), kText);
  const LookReport long_report = look_at(look_model(model), words);
  EXPECT_EQ(plan_recorded_page(short_report).form, RecordedForm::heads);
  EXPECT_EQ(plan_recorded_page(long_report).form, RecordedForm::inputs);
  expect_equal_weights(long_report, plan_recorded_page(long_report));
  // Where parameters fit into 16 bits, as the built-in model's do, they are kept so.
  const TextModel builtin = builtin_model();
  const LookReport report = look_at(look_model(builtin), "The cat");
  const std::string bytes =
      decoded(recorded_page_html(report, {.form = RecordedForm::inputs}), "recording");
  EXPECT_EQ(file_of(bytes).find("layers.3.k_weight")->dtype, DType::bf16);
}

TEST_F(RecordedPage, sizes_that_are_said_are_those_that_are_written) {
  const TextModel model = drawn_model({.d_model = 256});
  const LookReport report = look_at(look_model(model), kText);
  const RecordedPlan all = plan_recorded_page(report);
  const RecordedPlan some =
      plan_recorded_page(report, {.most_bytes = all.bytes - 30'000, .heads = {{1, 2}}});
  EXPECT_EQ(some.form, RecordedForm::partly);
  EXPECT_EQ(some.bytes_in_full, all.bytes);
  for (const RecordedPlan& plan : {all, some}) {
    const auto said = static_cast<double>(plan.bytes);
    EXPECT_NEAR(said, static_cast<double>(recorded_page_html(report, plan).size()), 0.01 * said);
  }
}

TEST_F(RecordedPage, above_the_limit_chosen_heads_stay_and_others_keep_their_strongest_keys) {
  const TextModel model = drawn_model({.d_model = 256, .num_kv_heads = 2});
  const LookReport report = look_at(look_model(model), kText);
  const std::int64_t whole = plan_recorded_page(report).bytes;
  const RecordedPlan plan =
      plan_recorded_page(report, {.most_bytes = whole - 30'000, .heads = {{0, 3}}});
  ASSERT_EQ(plan.full.size(), 1U);
  const std::string html = recorded_page_html(report, plan);
  EXPECT_EQ(data_of(html).at("recorded").at("full").elements().front().as_int64(), 3);
  const std::string bytes = decoded(html, "recording");
  const SafetensorsFile file = file_of(bytes);
  const Tensor keys = file.read(*file.find("layers.1.keys.2"));
  const Tensor top = file.read(*file.find("layers.1.top.2"));
  const Tensor weights = report.recording->weights(1, {.heads = {2}});
  const dim_t last = report.recording->tokens() - 1;
  for (dim_t n = 0; n < kStrongestKeys; ++n) {
    const auto key = static_cast<dim_t>(keys.at({last, n}));
    EXPECT_EQ(top.at({last, n}), weights.at({0, last, key}));
    EXPECT_LE(top.at({last, n}), top.at({last, std::max<dim_t>(n - 1, 0)}));
    EXPECT_EQ(keys.at({0, n}), n == 0 ? 0 : -1);
  }
  EXPECT_EQ(file.find("layers.1.q.2"), nullptr);
  RecordedPass pass(std::as_bytes(std::span(bytes.data(), bytes.size())));
  EXPECT_EQ(error_of([&] { pass.weights(1, 2, 0, 1); }),
            "page: the recording lacks q.2 of layer 1");
}

TEST_F(RecordedPage, without_chosen_heads_as_many_stay_as_fit) {
  const TextModel model = drawn_model({.d_model = 256});
  const LookReport report = look_at(look_model(model), kText);
  const std::int64_t whole = plan_recorded_page(report).bytes;
  const RecordedPlan plan = plan_recorded_page(report, {.most_bytes = whole - 30'000});
  EXPECT_EQ(plan.form, RecordedForm::partly);
  EXPECT_FALSE(plan.full.empty());
  EXPECT_LT(plan.full.size(), report.heads.size());
  EXPECT_LE(plan.bytes, whole - 30'000);
}

TEST_F(RecordedPage, a_tile_is_the_largest_weight_that_it_covers_in_8_bits) {
  const TextModel model = drawn_model({});
  const LookReport report = look_at(look_model(model), kText);
  const std::string bytes = decoded(
      recorded_page_html(report, {.form = RecordedForm::inputs, .pooled = true}), "recording");
  const SafetensorsFile file = file_of(bytes);
  const Tensor tiles = file.read(*file.find("tiles"));
  const dim_t tokens = report.recording->tokens();  // fewer than cells: one token each
  ASSERT_EQ(tiles.dim(2), tokens * (tokens + 1) / 2);
  const Tensor weights = report.recording->weights(1, {.heads = {1}});
  for (dim_t i = 0, n = 0; i < tokens; ++i) {
    for (dim_t j = 0; j <= i; ++j, ++n) {
      EXPECT_EQ(tiles.at({1, 1, n}), std::round(255.0 * std::sqrt(weights.at({0, i, j}))));
    }
  }
}

TEST_F(RecordedPage, what_does_not_fit_is_refused_in_words) {
  const TextModel model = drawn_model({});
  const LookReport report = look_at(look_model(model), kText);
  const std::string said = error_of([&] { plan_recorded_page(report, {.most_bytes = 100'000}); });
  EXPECT_NE(said.find("with 0 of 8 heads in full, take "), std::string::npos) << said;
  EXPECT_NE(said.find("raise most_bytes or record a part of the text"), std::string::npos);
  EXPECT_NE(error_of([&] {
              plan_recorded_page(report, {.heads = {{2, 0}}});
            }).find("there is no layer 2 head 0"),
            std::string::npos);
}

TEST_F(RecordedPage, a_damaged_recording_is_refused_in_words) {
  const std::string nothing = "not a file";
  EXPECT_NE(error_of([&] {
              RecordedPass pass(std::as_bytes(std::span(nothing.data(), nothing.size())));
            }).find("recording"),
            std::string::npos);
  // Sizes that the tensors do not have.
  const TextModel model = drawn_model({});
  const LookReport report = look_at(look_model(model), kText);
  std::string bytes =
      decoded(recorded_page_html(report, {.form = RecordedForm::inputs}), "recording");
  const std::string said = "\\\"d_model\\\":32";
  const std::size_t at = bytes.find(said);
  ASSERT_NE(at, std::string::npos);
  bytes.replace(at, said.size(), "\\\"d_model\\\":64");
  RecordedPass pass(std::as_bytes(std::span(bytes.data(), bytes.size())));
  EXPECT_NE(error_of([&] { pass.weights(0, 0, 0, 1); }).find("layers.0.x: has shape [22, 32]"),
            std::string::npos);
}

}  // namespace
}  // namespace cephalo
