#include "cephalo/train/recipe.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <span>

#include "cephalo/core/fail.h"
#include "cephalo/model/gpt_memory.h"
#include "cephalo/model/parameter_list.h"
#include "cephalo/text/windows.h"
#include "cephalo/train/trainer_state.h"

namespace cephalo {
namespace {

constexpr const char* kEndOfText = "<|endoftext|>";

struct Tier {
  std::int64_t from_tokens;  // of the corpus
  dim_t d_model, num_layers, num_heads, context_length, batch;
};
constexpr Tier kTiers[] = {
    {0, 64, 2, 4, 64, 16},            // a short story
    {60'000, 128, 4, 4, 128, 16},     // a book
    {1'000'000, 256, 4, 8, 256, 32},  // a shelf
    {50'000'000, 384, 6, 6, 256, 32}  // a library
};

constexpr double kBudgetSeconds = 600.0;
// Counts up to here can be multiplied by rounds and times without loss.
constexpr std::int64_t kMostTokens = std::int64_t{1} << 53;

void check(const RecipeText& text, const RecipeMachine& machine) {
  for (const std::int64_t tokens : {text.training_tokens, text.validation_tokens}) {
    require(0 <= tokens && tokens <= kMostTokens,
            "choose_recipe: training_tokens ({}) and validation_tokens ({}) must be from 0 to 2^53",
            text.training_tokens, text.validation_tokens);
  }
  require(machine.flops >= 0.0 && std::isfinite(machine.flops) && machine.memory >= 0,
          "choose_recipe: flops ({}) and memory ({}) must be >= 0, where 0 is unknown",
          machine.flops, machine.memory);
}

// Tokens a second of a training step. A multiplication and an addition for each parameter of a
// matrix on the way there and twice on the way back, and attention over half the context; about
// kEfficiency of what the machine can do is reached.
double tokens_per_second(const GptOptions& model, double flops) {
  constexpr double kEfficiency = 0.5;
  if (flops <= 0.0) return std::numeric_limits<double>::infinity();
  const double d = static_cast<double>(model.d_model);
  const double layers = static_cast<double>(model.num_layers);
  const ParameterList list = parameter_list(model);
  double matrices = d * static_cast<double>(model.vocab_size);  // the head
  for (const ParameterInfo& p : list.block()) {
    if (p.kind == ParameterKind::matrix) matrices += layers * static_cast<double>(numel(p.shape));
  }
  const double attention = layers * 2.0 * d * static_cast<double>(model.context_length) / 2.0;
  return kEfficiency * flops / (6.0 * (matrices + attention));
}

GptOptions model_of(const Tier& tier, std::int64_t vocab_size, const RecipeWishes& wishes) {
  GptOptions model;
  model.vocab_size = vocab_size;
  model.context_length = tier.context_length;
  model.d_model = tier.d_model;
  model.num_heads = tier.num_heads;
  model.num_layers = tier.num_layers;
  model.positions = PositionKind::rotary;
  model.seed = 123;
  if (wishes.model) wishes.model(model);
  static_cast<void>(checked_options(model, "choose_recipe"));
  return model;
}

TrainerOptions trainer_of(const Tier& tier, const GptOptions& model, const RecipeWishes& wishes) {
  TrainerOptions trainer;
  trainer.batch = tier.batch;
  trainer.schedule.min_lr_share = 0.1;
  trainer.shards = 0;
  if (wishes.trainer) wishes.trainer(trainer);
  if (trainer.shards == 0) trainer.shards = default_shards(trainer.batch);
  trainer.context_length = model.context_length;
  check_trainer_options(trainer, model);
  return trainer;
}

// Until the text was read so often that more would be learned by heart, or the time is up.
std::int64_t choose_steps(std::int64_t training_tokens, double speed, std::int64_t step_tokens) {
  const double rounds = training_tokens < 1'000'000 ? 20.0 : 6.0;
  const double tokens =
      std::min(rounds * static_cast<double>(training_tokens), kBudgetSeconds * speed);
  const auto steps = static_cast<std::int64_t>(tokens / static_cast<double>(step_tokens));
  return std::max<std::int64_t>(100, steps / 50 * 50);
}

// Half the rows twice over give the same step in less memory.
void fit_into_memory(std::int64_t memory, Recipe& recipe) {
  TrainerOptions& trainer = recipe.trainer;
  const auto needed = [&] {
    return memory_bytes(recipe.model, trainer.batch, recipe.model.context_length).total();
  };
  const std::int64_t most = memory / 5 * 4;
  while (most > 0 && needed() > most && trainer.batch % 2 == 0) {
    trainer.batch /= 2;
    trainer.accumulate *= 2;
  }
}

// What is done between steps: checkpoints once a minute, five samples, validation for a tenth of
// the time at most.
void choose_pauses(std::int64_t validation_tokens, Recipe& recipe) {
  const std::int64_t steps = recipe.trainer.schedule.steps;
  const double each = recipe.seconds / static_cast<double>(std::max<std::int64_t>(1, steps));
  const auto in_a_minute = static_cast<std::int64_t>(60.0 / std::max(each, 1e-3));
  recipe.save_every = std::clamp<std::int64_t>(in_a_minute, 10, 1000);
  recipe.sample_every = std::max<std::int64_t>(1, steps / 5);
  const std::int64_t windows = (validation_tokens - 1) / recipe.model.context_length;
  recipe.rows.validation_rows = std::clamp<std::int64_t>(windows, 0, 128);
  // A row of validation takes about a third of one of training.
  const std::int64_t thrice = checked_mul(3, recipe.trainer.batch * recipe.trainer.accumulate);
  recipe.validate_every =
      std::max<std::int64_t>({1, steps / 20, 10 * recipe.rows.validation_rows / thrice});
}

}  // namespace

std::int64_t recipe_vocab_size(std::int64_t bytes) {
  if (bytes < 300'000) return 512;
  if (bytes < 3'000'000) return 1024;
  if (bytes < 12'000'000) return 2048;
  return 4096;
}

Recipe choose_recipe(const RecipeText& text, const RecipeWishes& wishes,
                     const RecipeMachine& machine) {
  check(text, machine);
  Recipe recipe;
  for (auto tier = std::rbegin(kTiers); tier != std::rend(kTiers); ++tier) {
    const bool smallest = std::next(tier) == std::rend(kTiers);
    if (!smallest && text.training_tokens < tier->from_tokens) continue;
    recipe.model = model_of(*tier, text.vocab_size, wishes);
    recipe.trainer = trainer_of(*tier, recipe.model, wishes);
    const double in_time = kBudgetSeconds * tokens_per_second(recipe.model, machine.flops);
    const bool learns = in_time >= 0.5 * static_cast<double>(parameter_count(recipe.model));
    if (smallest || learns || wishes.own_width) break;
  }
  if (!wishes.own_batch) fit_into_memory(machine.memory, recipe);
  if (recipe.trainer.batch % recipe.trainer.shards != 0) {  // fewer rows than were wished for
    recipe.trainer.shards = default_shards(recipe.trainer.batch);
  }
  const std::int64_t step_rows = checked_mul(recipe.trainer.batch, recipe.trainer.accumulate);
  const std::int64_t step_tokens = checked_mul(step_rows, recipe.model.context_length);
  const double speed = tokens_per_second(recipe.model, machine.flops);
  Schedule& schedule = recipe.trainer.schedule;
  schedule.steps = wishes.steps.value_or(choose_steps(text.training_tokens, speed, step_tokens));
  schedule.warmup = wishes.warmup.value_or(std::min<std::int64_t>(200, (schedule.steps + 9) / 10));
  check_trainer_options(recipe.trainer, recipe.model);
  recipe.seconds = static_cast<double>(schedule.steps) * static_cast<double>(step_tokens) / speed;
  recipe.rows.repeat_share = wishes.repeat_share;
  recipe.rows.repeat_sentences = wishes.repeat_share > 0.0;
  choose_pauses(text.validation_tokens, recipe);
  return recipe;
}

TrainRows recipe_rows(const std::shared_ptr<const TokenSource>& tokens, const Bpe& bpe,
                      dim_t training_end, const GptOptions& model, const RowRecipe& rows) {
  require(training_end > model.context_length,
          "the text has {} tokens for training, a row needs {}; more text or a shorter "
          "context_length helps",
          training_end, model.context_length + 1);
  require(model.seed.has_value(), "recipe_rows: the model has no seed, by which rows are drawn");
  require(rows.validation_rows >= 0, "recipe_rows: validation_rows ({}) must be >= 0",
          rows.validation_rows);
  const std::optional<TokenId> first = bpe.find(kEndOfText);
  const auto fill = [first](const Windows& windows, std::int64_t number,
                            std::span<std::int64_t> ids) {
    windows.row(number, ids);
    if (!first.has_value()) return;
    // A window ends with the first token of the next, so none is lost.
    std::copy_backward(ids.begin(), ids.end() - 1, ids.end());
    ids[0] = *first;
  };
  WindowOptions options;
  options.context_length = model.context_length;
  options.shuffle = true;
  options.drop_last = false;
  options.seed = *model.seed;
  options.repeated_rows = rows.repeat_share;
  if (rows.repeat_sentences) options.sentence_ends = sentence_ends(bpe);
  options.range = {0, training_end};
  TrainRows sources;
  sources.training = [fill, windows = std::make_shared<Windows>(tokens, options)](
                         std::int64_t number, std::span<std::int64_t> ids) {
    fill(*windows, number, ids);
  };
  if (rows.validation_rows == 0) return sources;
  options.shuffle = false;
  options.repeated_rows = 0.0;
  options.range = {training_end, tokens->tokens()};
  sources.validation = [fill, count = rows.validation_rows,
                        windows = std::make_shared<Windows>(tokens, options)](
                           std::int64_t number, std::span<std::int64_t> ids) {
    fill(*windows, checked_mul(number, windows->count()) / count, ids);
  };
  return sources;
}

}  // namespace cephalo
