#include "cephalo/view/head_trace.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "cephalo/model/builtin.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::error_of;

constexpr const char* kText = "The cat sat on the mat. The cat";

class HeadTraceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_builtin_model()) GTEST_SKIP() << "built without a model";
  }
};

// The textbook's trace of a layer on what it is given within the model.
Trace textbook(const LookModel& model, const std::string& text, dim_t layer) {
  Tensor input;
  GptCall call;
  call.on_attention = [&](dim_t l, const TensorView& x) {
    if (l == layer) input = Tensor::copy(x);
  };
  const std::vector<std::int64_t> ids = look_ids(model, text, true);
  model.gpt(TensorView(ids.data(), {1, std::ssize(ids)}), call);
  return model.gpt.attention(layer).trace(input);
}

// The trace by hand, beside the steps of the textbook on the same layer.
void expect_textbook(const LookModel& model, dim_t layer, dim_t head, dim_t token) {
  const HeadTrace trace =
      trace_head(model, {kText}, {.layer = layer, .head = head, .token = token});
  const Trace steps = textbook(model, kText, layer);
  const auto row = [&](const char* key) { return steps.at(key).value[0][head][token]; };
  ASSERT_EQ(std::ssize(trace.keys), token + 1);
  double sum = 0.0;
  for (dim_t j = 0; j <= token; ++j) {
    const TracedKey& key = trace.keys[static_cast<std::size_t>(j)];
    EXPECT_NEAR(key.product, row("scores").at({j}), 1e-3) << j;
    EXPECT_NEAR(key.score, row("scores_scaled").at({j}), 2e-4) << j;
    EXPECT_NEAR(key.weight, row("weights").at({j}), 1e-4) << j;
    EXPECT_DOUBLE_EQ(key.score, key.product * trace.scale);
    sum += key.weight;
  }
  EXPECT_NEAR(sum, 1.0, 1e-12);
  for (dim_t d = 0; d < trace.context.numel(); ++d) {
    EXPECT_NEAR(trace.context.at({d}), row("context_heads").at({d}), 1e-3) << d;
  }
}

// What the heads of a layer add, with the bias, is the layer's output.
double output_norm_without_bias(const LookModel& model, dim_t layer, dim_t token) {
  const Tensor output =
      Tensor::copy(textbook(model, kText, layer).at("output").value[0][token], DType::f64);
  const Tensor bias =
      Tensor::copy(model.gpt.attention(layer).parameter("out_proj.bias"), DType::f64);
  double squares = 0.0;
  for (dim_t d = 0; d < output.numel(); ++d) {
    squares += std::pow(output.at({d}) - bias.at({d}), 2);
  }
  return std::sqrt(squares);
}

TEST_F(HeadTraceTest, by_hand_is_what_the_textbook_computes) {
  const TextModel model = builtin_model();
  const LookModel seen = look_model(model);
  expect_textbook(seen, 3, 1, 9);
  expect_textbook(seen, 0, 7, 4);
  expect_textbook(seen, 2, 3, 0);
}

// Neighbouring heads take the same keys and values; positions are learned.
TEST_F(HeadTraceTest, heads_may_share_keys_and_values) {
  const Bpe tokenizer = builtin_tokenizer();
  const Gpt gpt({.vocab_size = tokenizer.vocab_size(),
                 .context_length = 16,
                 .d_model = 24,
                 .num_heads = 4,
                 .num_kv_heads = 2,
                 .num_layers = 2,
                 .seed = 3});
  const LookModel model{"shared", gpt, tokenizer, std::nullopt};
  for (dim_t head = 0; head < 4; ++head) expect_textbook(model, 1, head, 5);
  EXPECT_FALSE(trace_head(model, {kText}).rotary.has_value());
  EXPECT_FALSE(trace_head(model, {kText}).begun);
}

TEST_F(HeadTraceTest, heads_add_up_to_what_the_layer_adds) {
  const TextModel model = builtin_model();
  const LookModel seen = look_model(model);
  const HeadTrace trace = trace_head(seen, {kText}, {.layer = 3, .token = 9});
  EXPECT_NEAR(trace.added_norm, output_norm_without_bias(seen, 3, 9), 1e-3 * trace.added_norm);
  const std::vector<double> shares = trace.shares();
  ASSERT_EQ(shares.size(), 8U);
  EXPECT_NEAR(std::accumulate(shares.begin(), shares.end(), 0.0), 1.0, 1e-12);
  EXPECT_LT(trace.added_norm,
            std::accumulate(trace.head_norms.begin(), trace.head_norms.end(), 0.0));
  EXPECT_GT(trace.bias_norm, 0.0);
  // A head alone adds at most what its keys add.
  double keys = 0.0;
  for (const TracedKey& key : trace.keys) keys += key.adds;
  EXPECT_LE(trace.head_norms[0], keys * (1 + 1e-12));
}

// Its induction head looks at what followed " cat" before.
TEST_F(HeadTraceTest, the_strongest_key_of_an_induction_head_followed_the_same_token) {
  const TextModel model = builtin_model();
  const HeadTrace trace = trace_head(look_model(model), {kText}, {.layer = 3, .head = 1});
  EXPECT_EQ(trace.token, 9);
  EXPECT_EQ(trace.tokens[static_cast<std::size_t>(trace.strongest()[0])].piece, " sat");
  EXPECT_TRUE(trace.rotary.has_value());
  EXPECT_TRUE(trace.begun);
}

TEST_F(HeadTraceTest, a_text_of_a_batch_gives_what_it_gives_alone) {
  const TextModel model = builtin_model();
  const LookModel seen = look_model(model);
  const std::vector<std::string> texts = {"A dog", kText, "Once upon a time"};
  for (dim_t b = 0; b < 3; ++b) {
    const std::string& text = texts[static_cast<std::size_t>(b)];
    const HeadTrace among = trace_head(seen, texts, {.layer = 2, .head = 3, .sequence = b});
    const HeadTrace alone = trace_head(seen, {text}, {.layer = 2, .head = 3});
    EXPECT_EQ(among.text, text);
    EXPECT_EQ(among.padded_to(), 10);
    ASSERT_EQ(among.keys.size(), alone.keys.size());
    for (std::size_t j = 0; j < alone.keys.size(); ++j) {
      EXPECT_NEAR(among.keys[j].weight, alone.keys[j].weight, 1e-5);
      EXPECT_NEAR(among.keys[j].adds, alone.keys[j].adds, 1e-4);
    }
  }
}

TEST_F(HeadTraceTest, what_there_is_not_is_refused_by_its_number) {
  const TextModel model = builtin_model();
  const LookModel seen = look_model(model);
  const auto refused = [&](const std::vector<std::string>& texts, const HeadTraceOptions& o) {
    return error_of([&] { static_cast<void>(trace_head(seen, texts, o)); });
  };
  EXPECT_EQ(refused({kText}, {.layer = 4}),
            "trace: there is no layer 4 head 0; the model has 4 layers of 8 heads");
  EXPECT_EQ(refused({kText}, {.head = -1}),
            "trace: there is no layer 0 head -1; the model has 4 layers of 8 heads");
  EXPECT_EQ(refused({kText}, {.token = 10}),
            "trace: there is no token 10; the text has 10, from 0 to 9");
  EXPECT_EQ(refused({kText}, {.sequence = 1}),
            "trace: sequence 1 is not in [0, 1): so many texts are given");
  EXPECT_EQ(refused({}, {}), "trace: there is no text");
  EXPECT_EQ(refused({""}, {.begin = false}),
            "trace: the text is empty, and no token was prepended");
  std::string endless;
  for (int k = 0; k < 300; ++k) endless += " the";
  EXPECT_EQ(refused({endless}, {}).substr(0, 37), "trace: 301 tokens are more than cepha");
}

TEST_F(HeadTraceTest, the_table_shows_the_strongest_keys_and_says_what_it_leaves_out) {
  const TextModel model = builtin_model();
  const HeadTrace trace = trace_head(look_model(model), {kText}, {.layer = 3, .head = 1});
  const std::string all = to_text(trace);
  EXPECT_EQ(all.find("left out"), std::string::npos);
  EXPECT_NE(all.find("\n   3 sat"), std::string::npos);
  EXPECT_NE(all.find("rotation"), std::string::npos);
  const std::string two = to_text(trace, {.top = 2});
  EXPECT_NE(two.find("\n   0 "), std::string::npos);
  EXPECT_NE(two.find("\n   3 sat"), std::string::npos);
  EXPECT_NE(two.find("\n   9 cat"), std::string::npos) << "the query itself is always there";
  EXPECT_EQ(two.find("\n   1 The"), std::string::npos);
  EXPECT_NE(two.find("7 keys are left out: their weights are 0.0"), std::string::npos) << two;
  EXPECT_EQ(two.find("SOFTMAX"), std::string::npos);
  EXPECT_NE(to_text(trace, {.explain = true}).find("SOFTMAX\n   what    "), std::string::npos);
}

TEST_F(HeadTraceTest, json_has_every_number) {
  const TextModel model = builtin_model();
  const LookModel seen = look_model(model);
  const HeadTrace trace = trace_head(seen, {kText, "A dog"}, {.layer = 3, .head = 1});
  const auto json = nlohmann::json::parse(to_json(trace, seen));
  EXPECT_EQ(json["schema"], "cephalo.trace/1");
  EXPECT_EQ(json["trained"], true);
  EXPECT_EQ(json["layer"], 3);
  EXPECT_EQ(json["token"], 9);
  ASSERT_EQ(json["keys"].size(), 10U);
  EXPECT_EQ(json["keys"][3]["weight"].get<double>(), trace.keys[3].weight);
  EXPECT_EQ(json["keys"][3]["v"].size(), 32U);
  EXPECT_EQ(json["keys"][3]["k"][5].get<double>(), trace.k.at({3, 5}));
  EXPECT_EQ(json["context"][31].get<double>(), trace.context.at({31}));
  EXPECT_EQ(json["heads"].size(), 8U);
  EXPECT_EQ(json["batch"]["texts"][1]["tokens"], 3);
  EXPECT_EQ(json["batch"]["padded_to"], 10);
  EXPECT_TRUE(json["rung"].is_null());
}

}  // namespace
}  // namespace cephalo
