#include "cli/train_plan.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <optional>
#include <type_traits>

#include "cephalo/core/format.h"
#include "cephalo/core/parallel.h"
#include "cli/gradcheck_flags.h"
#include "cli/machine.h"
#include "cli/numbers.h"
#include "cli/terminal.h"
#include "cli/verbs.h"

namespace cephalo::cli {
namespace {

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
constexpr double kRepeatShare = 0.2;  // without repeated rows, no induction head forms in that time

// Tokens a second of a training step. A multiplication and an addition for each parameter of a
// matrix on the way there and twice on the way back, and attention over half the context; about
// kEfficiency of what the machine can do is reached.
double tokens_per_second(const GptOptions& model, double flops) {
  constexpr double kEfficiency = 0.5;
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

GptOptions model_of(const TrainFlags& flags, const Tier& tier, std::int64_t vocab_size) {
  GptOptions model;
  model.vocab_size = vocab_size;
  model.context_length = tier.context_length;
  model.d_model = tier.d_model;
  model.num_heads = tier.num_heads;
  model.num_layers = tier.num_layers;
  model.positions = PositionKind::rotary;
  model.seed = 123;
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
  return model;
}

TrainerOptions trainer_of(const TrainFlags& flags, dim_t batch) {
  TrainerOptions o;
  o.batch = size_or("--batch", flags.batch, batch);
  o.accumulate = size_or("--accumulate", flags.accumulate, 1);
  o.beta2 = share_or("--beta2", flags.beta2, o.beta2);
  o.weight_decay = number_or("--weight-decay", flags.weight_decay, o.weight_decay);
  o.clip = number_or("--clip", flags.clip, o.clip);
  o.schedule.learning_rate =
      positive_or("--learning-rate", flags.learning_rate, o.schedule.learning_rate);
  o.schedule.min_lr_share = number_or("--min-lr-share", flags.min_lr_share, 0.1);
  if (o.schedule.min_lr_share > 1.0) {
    throw UsageError(
        format_text("--min-lr-share: '{}' is not a number from 0 to 1", flags.min_lr_share));
  }
  return o;
}

// Until the text was read so often that more would be learned by heart, or the time is up.
std::int64_t choose_steps(std::int64_t training_tokens, double speed, std::int64_t step_tokens) {
  const double rounds = training_tokens < 1'000'000 ? 20.0 : 6.0;
  const double tokens =
      std::min(rounds * static_cast<double>(training_tokens), kBudgetSeconds * speed);
  const auto steps = static_cast<std::int64_t>(tokens / static_cast<double>(step_tokens));
  return std::max<std::int64_t>(100, steps / 50 * 50);
}

TrainSettings settings_of(const TrainFlags& flags, const TrainPlan& plan,
                          std::int64_t validation_tokens) {
  TrainSettings s;
  const std::int64_t steps = plan.trainer.schedule.steps;
  const double each = plan.seconds / static_cast<double>(std::max<std::int64_t>(1, steps));
  const auto in_a_minute = static_cast<std::int64_t>(60.0 / std::max(each, 1e-3));
  s.save_every = std::clamp<std::int64_t>(in_a_minute, 10, 1000);
  s.sample_every = std::max<std::int64_t>(1, steps / 5);
  s.repeat_share = share_or("--repeat-share", flags.repeat_share, kRepeatShare);
  s.repeat_sentences = s.repeat_share > 0.0;
  const std::int64_t windows = (validation_tokens - 1) / plan.model.context_length;
  s.validation_rows = std::clamp<std::int64_t>(windows, 0, 128);
  // A row of validation takes about a third of one of training: in all, a tenth at most.
  const std::int64_t step_rows = plan.trainer.batch * plan.trainer.accumulate;
  s.validate_every = std::max<std::int64_t>(
      {1, steps / 20, static_cast<std::int64_t>(10 * s.validation_rows / (3 * step_rows))});
  s.bf16_export = flags.bf16_export;
  apply_to_resumed(flags, s);
  return s;
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
  throw UsageError(
      format_text("{}: {}, the run that is resumed has {}; leave it out or begin a new run in "
                  "another folder",
                  flag, printable(typed), there));
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

// Half the rows twice over give the same step in less memory.
void fit_into_memory(TrainPlan& plan) {
  const auto needed = [&] {
    return memory_bytes(plan.model, plan.trainer.batch, plan.model.context_length).total();
  };
  const std::int64_t most = available_memory() / 5 * 4;
  while (most > 0 && needed() > most && plan.trainer.batch % 2 == 0) {
    plan.trainer.batch /= 2;
    plan.trainer.accumulate *= 2;
  }
}

}  // namespace

void check_train_flags(const TrainFlags& flags) {
  constexpr std::int64_t kAnySize = 300;
  TrainPlan plan;
  plan.model = model_of(flags, kTiers[0], kAnySize);
  plan.trainer = trainer_of(flags, kTiers[0].batch);
  static_cast<void>(size_or("--steps", flags.steps, 1));
  static_cast<void>(count_or("--warmup", flags.warmup, 1));
  static_cast<void>(size_or("--report-every", flags.report_every, 1));
  static_cast<void>(share_or("--validation-share", flags.validation_share, 0.0));
  static_cast<void>(settings_of(flags, plan, kAnySize));
}

dim_t shortest_row(const TrainFlags& flags) {
  return 1 + size_or("--context-length", flags.typed("context_length"), kTiers[0].context_length);
}

std::int64_t choose_vocab_size(std::int64_t bytes) {
  if (bytes < 300'000) return 512;
  if (bytes < 3'000'000) return 1024;
  if (bytes < 12'000'000) return 2048;
  return 4096;
}

TrainPlan choose_plan(const TrainFlags& flags, std::int64_t vocab_size,
                      std::int64_t training_tokens, std::int64_t validation_tokens) {
  const double flops = fma_rate(0.05);
  TrainPlan plan;
  for (auto tier = std::rbegin(kTiers); tier != std::rend(kTiers); ++tier) {
    plan.model = model_of(flags, *tier, vocab_size);
    plan.trainer = trainer_of(flags, tier->batch);
    const bool smallest = std::next(tier) == std::rend(kTiers);
    const double in_time = kBudgetSeconds * tokens_per_second(plan.model, flops);
    const bool learns = in_time >= 0.5 * static_cast<double>(parameter_count(plan.model));
    if (smallest ||
        (training_tokens >= tier->from_tokens && (learns || !flags.typed("d_model").empty()))) {
      break;
    }
  }
  if (flags.batch.empty() && flags.accumulate.empty()) fit_into_memory(plan);
  const std::int64_t step_tokens =
      plan.trainer.batch * plan.trainer.accumulate * plan.model.context_length;
  const double speed = tokens_per_second(plan.model, flops);
  Schedule& schedule = plan.trainer.schedule;
  schedule.steps =
      size_or("--steps", flags.steps, choose_steps(training_tokens, speed, step_tokens));
  schedule.warmup =
      count_or("--warmup", flags.warmup, std::min<std::int64_t>(200, (schedule.steps + 9) / 10));
  plan.trainer.context_length = plan.model.context_length;
  plan.seconds = static_cast<double>(schedule.steps * step_tokens) / speed;
  plan.settings = settings_of(flags, plan, validation_tokens);
  return plan;
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
