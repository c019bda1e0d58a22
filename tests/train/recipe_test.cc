#include "cephalo/train/recipe.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/tensors.h"
#include "tests/support/vocabulary.h"

namespace cephalo {
namespace {

using testing::error_of;

constexpr std::int64_t kLarge = 100'000'000;

TEST(RecipeTest, a_larger_text_has_a_larger_model_and_vocabulary) {
  dim_t parameters = 0;
  for (const std::int64_t tokens : {1'000, 100'000, 2'000'000, 100'000'000}) {
    const Recipe recipe = choose_recipe({512, tokens, tokens / 20});
    EXPECT_GT(parameter_count(recipe.model), parameters) << tokens;
    parameters = parameter_count(recipe.model);
  }
  EXPECT_EQ(recipe_vocab_size(1'000), 512);
  EXPECT_EQ(recipe_vocab_size(1'000'000'000), 4096);
}

TEST(RecipeTest, a_slow_machine_has_a_smaller_model_unless_its_width_is_wished_for) {
  const Recipe slow = choose_recipe({4096, kLarge, 0}, {}, {.flops = 1e9});
  const Recipe fast = choose_recipe({4096, kLarge, 0}, {}, {.flops = 1e13});
  EXPECT_LT(slow.model.d_model, fast.model.d_model);
  EXPECT_GT(fast.seconds, 0.0);
  RecipeWishes wishes;
  wishes.model = [](GptOptions& model) { model.d_model = 768; };
  wishes.own_width = true;
  EXPECT_EQ(choose_recipe({4096, kLarge, 0}, wishes, {.flops = 1e9}).model.d_model, 768);
}

TEST(RecipeTest, little_memory_splits_a_step_and_leaves_its_rows) {
  const Recipe all = choose_recipe({4096, kLarge, 0});
  const std::int64_t whole =
      memory_bytes(all.model, all.trainer.batch, all.model.context_length).total();
  const Recipe split = choose_recipe({4096, kLarge, 0}, {}, {.memory = whole});
  EXPECT_LT(split.trainer.batch, all.trainer.batch);
  EXPECT_EQ(split.trainer.batch * split.trainer.accumulate, all.trainer.batch);
  RecipeWishes wishes;
  wishes.own_batch = true;
  EXPECT_EQ(choose_recipe({4096, kLarge, 0}, wishes, {.memory = whole}).trainer.accumulate, 1);
}

TEST(RecipeTest, what_is_wished_for_is_taken) {
  RecipeWishes wishes;
  wishes.trainer = [](TrainerOptions& trainer) { trainer.batch = 3; };
  wishes.steps = 7;
  wishes.warmup = 2;
  wishes.repeat_share = 0.0;
  const Recipe recipe = choose_recipe({512, 1'000, 1'000}, wishes);
  EXPECT_EQ(recipe.trainer.batch, 3);
  EXPECT_EQ(recipe.trainer.schedule.steps, 7);
  EXPECT_EQ(recipe.trainer.schedule.warmup, 2);
  EXPECT_FALSE(recipe.rows.repeat_sentences);
  EXPECT_EQ(recipe.rows.validation_rows, 999 / recipe.model.context_length);
}

TEST(RecipeTest, what_cannot_be_is_refused_by_name) {
  const auto refusal = [](const RecipeText& text, const RecipeWishes& wishes,
                          const RecipeMachine& machine) {
    return error_of([&] { choose_recipe(text, wishes, machine); });
  };
  EXPECT_EQ(refusal({512, -1, 0}, {}, {}),
            "choose_recipe: training_tokens (-1) and validation_tokens (0) must be from 0 to 2^53");
  EXPECT_EQ(refusal({512, 1, 1}, {}, {.memory = -1}),
            "choose_recipe: flops (0) and memory (-1) must be >= 0, where 0 is unknown");
  EXPECT_EQ(refusal({0, 1, 1}, {}, {}), "choose_recipe: vocab_size (0) must be > 0");
  RecipeWishes no_rows;
  no_rows.trainer = [](TrainerOptions& trainer) { trainer.batch = 0; };
  EXPECT_EQ(refusal({512, 1, 1}, no_rows, {}),
            "Trainer: batch (0) and accumulate (1) must be >= 1");
  EXPECT_EQ(refusal({512, 1, 1}, no_rows, {.memory = 1}),
            "Trainer: batch (0) and accumulate (1) must be >= 1");
  EXPECT_NE(refusal({512, 1, 1}, {.steps = -1}, {}).find("must be >= 0"), std::string::npos);
}

// The letters a to z, over and over, as bytes.
std::shared_ptr<const TokenSource> alphabet() {
  std::vector<TokenId> letters;
  for (int k = 0; k < 400; ++k) letters.push_back('a' + k % 26);
  return std::make_shared<TokensInMemory>(std::move(letters), 257);
}

const GptOptions kModel{.vocab_size = 257, .context_length = 8, .seed = 1};

TEST(RecipeRowsTest, every_row_begins_with_the_token_that_begins_a_text) {
  std::vector<std::string> pieces = testing::byte_vocabulary();
  pieces.emplace_back("<|endoftext|>");
  const Bpe bpe(pieces, {});
  const TrainRows rows = recipe_rows(alphabet(), bpe, 300, kModel, {.validation_rows = 4});
  std::vector<std::int64_t> ids(9);
  for (std::int64_t number = 0; number < 40; ++number) {
    rows.training(number, ids);
    EXPECT_EQ(ids[0], 256);
    for (std::size_t k = 2; k < ids.size(); ++k) {  // the alphabet goes on: no token is lost
      EXPECT_EQ((ids[k] - ids[k - 1] + 26) % 26, 1) << number;
    }
  }
  rows.validation(3, ids);
  EXPECT_EQ(ids[0], 256);
}

TEST(RecipeRowsTest, a_vocabulary_without_that_token_leaves_rows_as_they_are) {
  const Bpe bpe(testing::byte_vocabulary(), {});
  const TrainRows rows = recipe_rows(alphabet(), bpe, 300, kModel, {});
  std::vector<std::int64_t> ids(9);
  rows.training(0, ids);
  EXPECT_EQ((ids[1] - ids[0] + 26) % 26, 1);
  EXPECT_FALSE(rows.validation);
}

TEST(RecipeRowsTest, a_text_too_short_for_one_row_is_refused) {
  const Bpe bpe(testing::byte_vocabulary(), {});
  EXPECT_EQ(error_of([&] { recipe_rows(alphabet(), bpe, 8, kModel, {}); }),
            "the text has 8 tokens for training, a row needs 9; more text or a shorter "
            "context_length helps");
}

TEST(RecipeRowsTest, rows_without_a_seed_are_refused) {
  const Bpe bpe(testing::byte_vocabulary(), {});
  const GptOptions drawn{.vocab_size = 257, .context_length = 8};
  EXPECT_EQ(error_of([&] { recipe_rows(alphabet(), bpe, 300, drawn, {}); }),
            "recipe_rows: the model has no seed, by which rows are drawn");
  EXPECT_EQ(error_of([&] { recipe_rows(alphabet(), bpe, 300, kModel, {.validation_rows = -1}); }),
            "recipe_rows: validation_rows (-1) must be >= 0");
}

}  // namespace
}  // namespace cephalo
