#include "cephalo/model/generate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "cephalo/core/random.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::error_of;

GptOptions options_of(PositionKind positions) {
  return {.vocab_size = 61,
          .context_length = 16,
          .d_model = 32,
          .num_heads = 4,
          .num_layers = 2,
          .positions = positions,
          .seed = 8};
}

// Large parameters: logits that differ, so that a mistake changes the text.
Gpt lively_model(PositionKind positions) {
  Gpt model(options_of(positions));
  model.update_all([](std::size_t, const std::string& name, const MutableTensorView& p) {
    if (name.find("ln_") != std::string::npos) return;
    float* x = p.mutable_data_as<float>();
    for (dim_t i = 0; i < p.numel(); ++i) x[i] *= 15.0F;
  });
  model.prepare();
  return model;
}

std::map<std::int64_t, int> draws(const Tensor& logits, const SamplingOptions& options, int count) {
  TorchGenerator generator(4);
  std::map<std::int64_t, int> seen;
  for (int k = 0; k < count; ++k) ++seen[sample_token(logits, options, generator)];
  return seen;
}

TEST(GenerateTest, a_cache_does_not_change_the_text_also_past_the_context_length) {
  for (const PositionKind positions : {PositionKind::learned, PositionKind::rotary}) {
    const Gpt model = lively_model(positions);
    for (const double temperature : {0.0, 1.0}) {
      GenerateOptions options{.new_tokens = 50, .sampling = {.temperature = temperature}};
      const std::vector<std::int64_t> prompt{5, 7, 60};
      const Generated cached = generate(model, prompt, options);
      options.cached = false;
      EXPECT_EQ(generate(model, prompt, options).ids, cached.ids);
      EXPECT_EQ(cached.ids.size(), 50U);
      EXPECT_GT(cached.tokens_per_second(), 0.0);
    }
  }
}

TEST(GenerateTest, a_prompt_beyond_the_context_length_is_read_from_its_end) {
  const Gpt model = lively_model(PositionKind::learned);
  std::vector<std::int64_t> prompt(40, 3);
  for (std::size_t k = 0; k < prompt.size(); ++k) prompt[k] = static_cast<std::int64_t>(k);
  const std::vector<std::int64_t> end(prompt.end() - 8, prompt.end());
  const GenerateOptions options{.new_tokens = 4, .sampling = {.temperature = 0.0}};
  EXPECT_EQ(generate(model, prompt, options).ids, generate(model, end, options).ids);
}

TEST(GenerateTest, the_repetition_penalty_is_that_of_transformers) {
  const Tensor logits = Tensor::of({2.0, 1.9, -1.0, -1.05});
  const std::vector<std::int64_t> text{0, 0, 2};
  TorchGenerator generator(1);
  SamplingOptions greedy{.temperature = 0.0};
  EXPECT_EQ(sample_token(logits, greedy, generator, text), 0);
  greedy.repetition_penalty = 1.1;  // 2 / 1.1 = 1.82, once however often it stands there
  EXPECT_EQ(sample_token(logits, greedy, generator, text), 1);
  greedy.repetition_penalty = 1.05;  // 2 / 1.05 = 1.905; twice it would be 1.81
  EXPECT_EQ(sample_token(logits, greedy, generator, text), 0);
  greedy.repetition_penalty = 1.1;
  greedy.repetition_window = 1;  // of the id 2 alone
  EXPECT_EQ(sample_token(logits, greedy, generator, text), 0);
  // -1 · 1.1 is below -1.05.
  const Tensor negative = Tensor::of({-9.0, -9.0, -1.0, -1.05});
  EXPECT_EQ(sample_token(negative, greedy, generator, text), 3);
  greedy.repetition_window = 0;  // all of the text
  EXPECT_EQ(sample_token(logits, greedy, generator, text), 1);
}

TEST(GenerateTest, a_penalty_ends_a_loop_and_greedy_goes_round_in_it) {
  const Gpt model = lively_model(PositionKind::rotary);
  GenerateOptions options{.new_tokens = 60, .sampling = {.temperature = 0.0}};
  const auto distinct = [&] {
    const auto ids = generate(model, {5, 7}, options).ids;
    return std::set<std::int64_t>(ids.begin(), ids.end()).size();
  };
  const std::size_t plain = distinct();
  options.sampling.repetition_penalty = 2.0;
  EXPECT_GT(distinct(), plain);
}

TEST(GenerateTest, a_model_sees_all_of_a_text_or_half_a_context) {
  const GptOptions options = options_of(PositionKind::learned);
  EXPECT_EQ(tokens_seen(options, 16), 16);
  EXPECT_EQ(tokens_seen(options, 17), 8);
  EXPECT_EQ(tokens_seen(options, 8150), 8);
}

TEST(GenerateTest, the_seed_decides) {
  const Gpt model = lively_model(PositionKind::rotary);
  GenerateOptions options{.new_tokens = 20, .seed = 1};
  const auto first = generate(model, {1}, options).ids;
  EXPECT_EQ(generate(model, {1}, options).ids, first);
  options.seed = 2;
  EXPECT_NE(generate(model, {1}, options).ids, first);
}

TEST(GenerateTest, stop_tokens_and_callbacks_end_the_text) {
  const Gpt model = lively_model(PositionKind::rotary);
  GenerateOptions options{.new_tokens = 20};
  const auto whole = generate(model, {1}, options);
  EXPECT_FALSE(whole.stopped);
  options.stop_tokens = {whole.ids[6]};
  const auto stopped = generate(model, {1}, options);
  EXPECT_TRUE(stopped.stopped);
  EXPECT_EQ(stopped.ids.back(), whole.ids[6]);
  EXPECT_LE(stopped.ids.size(), 7U);
  options.stop_tokens.clear();
  std::vector<std::int64_t> told;
  options.on_token = [&](std::int64_t id) {
    told.push_back(id);
    return told.size() < 3;
  };
  const auto cut = generate(model, {1}, options);
  EXPECT_EQ(cut.ids, told);
  EXPECT_EQ(told.size(), 3U);
  EXPECT_TRUE(cut.stopped);
}

TEST(SamplingTest, temperature_zero_takes_the_largest_and_the_first_of_equals) {
  TorchGenerator generator(1);
  EXPECT_EQ(sample_token(Tensor::of({1, 5, 5, 2}), {.temperature = 0.0}, generator), 1);
  EXPECT_EQ(generator.draws(), 0U);
}

TEST(SamplingTest, shares_are_those_of_the_softmax) {
  const Tensor logits = Tensor::of({0.0, std::log(3.0), std::log(6.0)});
  const auto seen = draws(logits, {}, 10000);
  EXPECT_NEAR(seen.at(0), 1000, 150);
  EXPECT_NEAR(seen.at(1), 3000, 200);
  EXPECT_NEAR(seen.at(2), 6000, 200);
  const auto cold = draws(logits, {.temperature = 0.5}, 10000);  // squares: 1 : 9 : 36
  EXPECT_NEAR(cold.at(0), 217, 80);
}

TEST(SamplingTest, top_k_and_top_p_leave_the_others_out) {
  const Tensor logits = Tensor::of({0.0, std::log(3.0), std::log(6.0), -HUGE_VAL});
  EXPECT_EQ(draws(logits, {.top_k = 2}, 1000).size(), 2U);
  EXPECT_EQ(draws(logits, {.top_k = 1}, 1000).begin()->first, 2);
  EXPECT_EQ(draws(logits, {.top_k = 100}, 1000).size(), 3U);  // −inf never comes
  EXPECT_EQ(draws(logits, {.top_p = 0.55}, 1000).size(), 1U);
  EXPECT_EQ(draws(logits, {.top_p = 0.65}, 1000).size(), 2U);  // the one that reaches p is in
  EXPECT_EQ(draws(logits, {.top_p = 1e-9}, 1000).size(), 1U);
}

TEST(SamplingTest, errors_name_the_rule_and_the_number) {
  TorchGenerator generator(1);
  const Tensor logits = Tensor::of({1, 2});
  EXPECT_EQ(error_of([&] { sample_token(logits, {.temperature = -1.0}, generator); }),
            "sample_token: temperature (-1) must be >= 0 and finite");
  EXPECT_EQ(error_of([&] { sample_token(logits, {.top_p = 0.0}, generator); }),
            "sample_token: top_p (0) must be in (0, 1]");
  EXPECT_NE(error_of([&] {
              sample_token(Tensor::of({1, NAN}), {}, generator);
            }).find("the logit of id 1 is nan"),
            std::string::npos);
  const Gpt model(options_of(PositionKind::learned));
  EXPECT_EQ(error_of([&] { generate(model, {}); }),
            "generate: the prompt is empty; it needs at least one id");
  EXPECT_EQ(error_of([&] { generate(model, {1}, {.stop_tokens = {61}}); }),
            "generate: stop token 61 is outside the vocabulary of 61");
  EXPECT_EQ(error_of([&] {
              generate(model, {1, 61});
            }),
            "Gpt: id 61 at position 1 of sequence 0 is outside the vocabulary of 61");
}

}  // namespace
}  // namespace cephalo
