#include "cli/train_plan.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <type_traits>

#include "cephalo/core/format.h"
#include "cephalo/train/recipe.h"
#include "cli/gradcheck_flags.h"
#include "cli/machine.h"
#include "cli/numbers.h"
#include "cli/terminal.h"
#include "cli/verbs.h"

namespace cephalo::cli {
namespace {

dim_t size_or(const char* flag, const std::string& text, dim_t otherwise) {
  return parse_size(flag, text, otherwise);
}

std::int64_t count_or(const char* flag, const std::string& text, std::int64_t otherwise) {
  constexpr std::int64_t kMost = 1'000'000'000'000;
  return text.empty() ? otherwise : parse_integer(flag, text, 0, kMost);
}

double positive_or(const char* flag, const std::string& text, double otherwise) {
  return text.empty() ? otherwise : parse_positive(flag, text);
}

double number_or(const char* flag, const std::string& text, double otherwise) {
  return text.empty() ? otherwise : parse_tolerance(flag, text);
}

double share_or(const char* flag, const std::string& text, double otherwise) {
  return text.empty() ? otherwise : parse_probability(flag, text);
}

PositionKind parse_positions(const std::string& word) {
  if (word == "rotary") return PositionKind::rotary;
  if (word == "learned") return PositionKind::learned;
  throw UsageError(format_text("--positions: '{}' is not one of rotary, learned", printable(word)));
}

// The options that were typed; the others stay as they are.
struct FieldReader {
  void operator()(const OptionField& field, dim_t& value) const {
    value = size_or(flag_of(field.name).c_str(), flags.typed(field.name), value);
  }
  void operator()(const OptionField& field, double& value) const {
    value = field.range == OptionField::Range::share
                ? share_or(flag_of(field.name).c_str(), flags.typed(field.name), value)
                : positive_or(flag_of(field.name).c_str(), flags.typed(field.name), value);
  }
  void operator()(const OptionField& field, PositionKind& value) const {
    const std::string& word = flags.typed(field.name);
    if (!word.empty()) value = parse_positions(word);
  }
  void operator()(const OptionField& field, std::optional<std::uint64_t>& value) const {
    const std::string& number = flags.typed(field.name);
    if (!number.empty()) value = parse_seed(flag_of(field.name), number);
  }
  template <typename Other>
  void operator()(const OptionField&, const Other&) const {}  // there is no flag for it

  const TrainFlags& flags;
};

bool is_last(const std::string& word) {
  if (word == "best" || word == "last") return word == "last";
  throw UsageError(format_text("--export: '{}' is not one of best, last", printable(word)));
}

// The sizes that were typed, in place of those that the recipe proposes.
void change_model(const TrainFlags& flags, GptOptions& model) {
  for_fields(model, FieldReader{flags});
  const bool divides = model.d_model % model.num_heads == 0;
  if (!divides && flags.typed("num_heads").empty()) {
    model.num_heads = 1;
  } else if (!divides) {
    throw UsageError(format_text("--num-heads: {} does not divide --d-model {}", model.num_heads,
                                 model.d_model));
  }
  if (model.num_kv_heads > 0 && model.num_heads % model.num_kv_heads != 0) {
    throw UsageError(format_text("--num-kv-heads: {} does not divide --num-heads {}",
                                 model.num_kv_heads, model.num_heads));
  }
  if (model.positions == PositionKind::rotary && model.head_dim() % 2 != 0) {
    throw UsageError(
        format_text("--num-heads: {} leaves heads of {} numbers, rotary positions "
                    "need an even count; --positions learned takes any",
                    model.num_heads, model.head_dim()));
  }
}

void change_trainer(const TrainFlags& flags, TrainerOptions& o) {
  o.batch = size_or("--batch", flags.batch, o.batch);
  o.accumulate = size_or("--accumulate", flags.accumulate, o.accumulate);
  o.shards = size_or("--shards", flags.shards, o.shards);
  o.beta2 = share_or("--beta2", flags.beta2, o.beta2);
  o.weight_decay = number_or("--weight-decay", flags.weight_decay, o.weight_decay);
  o.clip = number_or("--clip", flags.clip, o.clip);
  o.schedule.learning_rate =
      positive_or("--learning-rate", flags.learning_rate, o.schedule.learning_rate);
  o.schedule.min_lr_share =
      number_or("--min-lr-share", flags.min_lr_share, o.schedule.min_lr_share);
  if (o.schedule.min_lr_share > 1.0) {
    throw UsageError(
        format_text("--min-lr-share: '{}' is not a number from 0 to 1", flags.min_lr_share));
  }
}

RecipeWishes wishes_of(const TrainFlags& flags) {
  RecipeWishes wishes;
  wishes.model = [&flags](GptOptions& model) { change_model(flags, model); };
  wishes.trainer = [&flags](TrainerOptions& trainer) { change_trainer(flags, trainer); };
  wishes.own_width = !flags.typed("d_model").empty();
  wishes.own_batch = !flags.batch.empty() || !flags.accumulate.empty();
  if (!flags.steps.empty()) wishes.steps = size_or("--steps", flags.steps, 0);
  if (!flags.warmup.empty()) wishes.warmup = count_or("--warmup", flags.warmup, 0);
  wishes.repeat_share = share_or("--repeat-share", flags.repeat_share, wishes.repeat_share);
  return wishes;
}

TrainSettings settings_of(const TrainFlags& flags, const Recipe& recipe) {
  TrainSettings s;
  s.repeat_share = recipe.rows.repeat_share;
  s.repeat_sentences = recipe.rows.repeat_sentences;
  s.save_every = recipe.save_every;
  s.sample_every = recipe.sample_every;
  s.validate_every = recipe.validate_every;
  s.validation_rows = recipe.rows.validation_rows;
  s.bf16_export = flags.bf16_export;
  apply_to_resumed(flags, s);
  return s;
}

// That of a text of hardly a token, whatever the machine.
Recipe smallest_recipe(const TrainFlags& flags) {
  constexpr std::int64_t kAnySize = 300;
  return choose_recipe({.vocab_size = kAnySize, .validation_tokens = kAnySize}, wishes_of(flags));
}

// A number that was typed must be the one that is there.
template <typename Number>
void refuse_other(const std::string& flag, const std::string& typed, Number there) {
  if (typed.empty()) return;
  bool equal = false;
  if constexpr (std::is_integral_v<Number>) {
    equal = parse_integer(flag, typed, 0, std::numeric_limits<std::int64_t>::max()) == there;
  } else {
    equal = parse_tolerance(flag, typed) == there;
  }
  if (equal) return;
  throw UsageError(format_text(
      "{}: {}, the run that is resumed has {}; omit it, or start a new run in another folder", flag,
      printable(typed), there));
}

// The same for options of the model.
struct FieldComparison {
  void operator()(const OptionField& field, dim_t there) const {
    refuse_other(flag_of(field.name), flags.typed(field.name), there);
  }
  void operator()(const OptionField& field, double there) const {
    refuse_other(flag_of(field.name), flags.typed(field.name), there);
  }
  void operator()(const OptionField& field, PositionKind there) const {
    const std::string& word = flags.typed(field.name);
    if (word.empty() || parse_positions(word) == there) return;
    throw UsageError(format_text("--positions: {}, the run that is resumed has others", word));
  }
  void operator()(const OptionField& field, const std::optional<std::uint64_t>& there) const {
    const std::string& number = flags.typed(field.name);
    if (number.empty() || parse_seed("--seed", number) == there) return;
    throw UsageError(
        format_text("--seed: {}, the run that is resumed has {}", number, there.value_or(0)));
  }
  template <typename Other>
  void operator()(const OptionField&, const Other&) const {}  // there is no flag for it

  const TrainFlags& flags;
};

}  // namespace

void check_train_flags(const TrainFlags& flags) {
  static_cast<void>(size_or("--report-every", flags.report_every, 1));
  static_cast<void>(share_or("--validation-share", flags.validation_share, 0.0));
  static_cast<void>(settings_of(flags, smallest_recipe(flags)));
}

dim_t shortest_row(const TrainFlags& flags) {
  return 1 + smallest_recipe(flags).model.context_length;
}

TrainPlan choose_plan(const TrainFlags& flags, std::int64_t vocab_size,
                      std::int64_t training_tokens, std::int64_t validation_tokens) {
  const Recipe recipe = choose_recipe({vocab_size, training_tokens, validation_tokens},
                                      wishes_of(flags), {fma_rate(0.05), available_memory()});
  return {recipe.model, recipe.trainer, settings_of(flags, recipe), recipe.seconds};
}

void apply_to_resumed(const TrainFlags& flags, TrainSettings& s) {
  s.save_every = size_or("--save-every", flags.save_every, s.save_every);
  s.sample_every = count_or("--sample-every", flags.sample_every, s.sample_every);
  if (!flags.prompt.empty()) s.prompt = flags.prompt;
  s.bf16_export = s.bf16_export || flags.bf16_export;
  if (!flags.which_export.empty()) s.export_last = is_last(flags.which_export);
}

void refuse_other_sizes(const TrainFlags& flags, const GptOptions& model,
                        const TrainerOptions& trainer, const TrainSettings& settings) {
  const GptOptions there = checked_options(model, "train");  // with what older runs left open
  for_fields(there, FieldComparison{flags});
  refuse_other("--batch", flags.batch, trainer.batch);
  refuse_other("--accumulate", flags.accumulate, trainer.accumulate);
  refuse_other("--shards", flags.shards, trainer.shards);
  refuse_other("--vocab-size", flags.vocab_size, model.vocab_size);
  refuse_other("--warmup", flags.warmup, trainer.schedule.warmup);
  refuse_other("--learning-rate", flags.learning_rate, trainer.schedule.learning_rate);
  refuse_other("--min-lr-share", flags.min_lr_share, trainer.schedule.min_lr_share);
  refuse_other("--weight-decay", flags.weight_decay, trainer.weight_decay);
  refuse_other("--beta2", flags.beta2, trainer.beta2);
  refuse_other("--clip", flags.clip, trainer.clip);
  refuse_other("--repeat-share", flags.repeat_share, settings.repeat_share);
}

std::int64_t available_memory() {
  std::ifstream file("/proc/meminfo");
  std::string word;
  std::int64_t kibibytes = 0;
  while (file >> word) {
    if (word == "MemAvailable:" && file >> kibibytes) return kibibytes << 10;
  }
  return 0;
}

}  // namespace cephalo::cli
