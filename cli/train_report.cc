#include "cli/train_report.h"

#include <algorithm>
#include <cmath>

#include "cephalo/core/cpu.h"
#include "cephalo/core/format.h"
#include "cephalo/core/parallel.h"
#include "cephalo/text/pre_split.h"
#include "cli/model_text.h"
#include "cli/terminal.h"

namespace cephalo::cli {
namespace {

constexpr std::size_t kBar = 24;

std::string bar(std::int64_t done, std::int64_t all) {
  const double share =
      static_cast<double>(done) / static_cast<double>(std::max<std::int64_t>(all, 1));
  const auto filled = static_cast<std::size_t>(std::min(share, 1.0) * static_cast<double>(kBar));
  return std::string(filled, '#') + std::string(kBar - filled, '.');
}

std::string rate(double tokens_per_second) {
  return tokens_per_second >= 10000.0 ? format_text("{:.1f}k tokens/s", tokens_per_second / 1000.0)
                                      : format_text("{:.0f} tokens/s", tokens_per_second);
}

}  // namespace

std::string in_words(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::llround(std::max(seconds, 0.0)));
  if (whole < 60) return format_text("{} s", whole);
  if (whole < 3600) return format_text("{} min {} s", whole / 60, whole % 60);
  return format_text("{} h {} min", whole / 3600, whole % 3600 / 60);
}

std::string in_bytes(std::int64_t bytes) {
  constexpr double kMiB = 1 << 20;
  const double mebibytes = static_cast<double>(bytes) / kMiB;
  return mebibytes < 1024.0 ? format_text("{:.1f} MiB", mebibytes)
                            : format_text("{:.1f} GiB", mebibytes / 1024.0);
}

std::string describe(const TrainPlan& plan, std::int64_t training_tokens,
                     std::int64_t validation_tokens, int processes) {
  const GptOptions& m = plan.model;
  const TrainerOptions& t = plan.trainer;
  const std::int64_t step_tokens = t.batch * t.accumulate * t.context_length;
  const std::int64_t seen = step_tokens * t.schedule.steps;
  const GptMemory memory = training_memory(m, t, threads(), processes);
  std::string text;
  const auto line = [&](const char* what, const std::string& value) {
    text += format_text("{:<12} {}\n", what, value);
  };
  line("text", format_text("{} tokens, {} more for validation", with_commas(training_tokens),
                           with_commas(validation_tokens)));
  line("model", format_text("{}, d_model {}, context_length {}, {} positions", layers_and_heads(m),
                            m.d_model, m.context_length, name(m.positions)));
  line("vocabulary", format_text("{} tokens", with_commas(m.vocab_size)));
  line("parameters", with_commas(parameter_count(m)));
  line("step", format_text("batch {}{}: {} tokens", t.batch,
                           t.accumulate > 1 ? format_text(" x {} passes", t.accumulate) : "",
                           with_commas(step_tokens)));
  line("steps", format_text("{}, {} of warm-up: {} tokens, the text {:.1f} times",
                            with_commas(t.schedule.steps), t.schedule.warmup, with_commas(seen),
                            static_cast<double>(seen) / static_cast<double>(training_tokens)));
  line("memory",
       format_text("{}: parameters {}, gradients {}, optimiser {}, a pass {}",
                   in_bytes(memory.total()), in_bytes(memory.parameters),
                   in_bytes(memory.gradients), in_bytes(memory.optimiser), in_bytes(memory.pass)));
  line("machine", format_text("{}{} threads, {}",
                              processes > 1 ? format_text("{} processes x ", processes) : "",
                              threads(), name(current_isa())));
  if (plan.seconds > 0.0) line("time", format_text("about {}", in_words(plan.seconds)));
  return text;
}

TrainReport::TrainReport(const TrainerOptions& options, const TrainingHistory& history,
                         std::int64_t line_every)
    : steps_(options.schedule.steps),
      step_tokens_(options.batch * options.accumulate * options.context_length),
      first_(history.steps.empty() ? 0 : history.steps.back().step),
      line_every_(line_every > 0 ? line_every : std::max<std::int64_t>(1, steps_ / 20)),
      begin_(Clock::now()),
      step_begin_(begin_),
      last_step_(first_) {
  for (const ValidationRecord& record : history.validation) {
    warned_ = learns_by_heart(record) || warned_;
  }
}

// Has the loss on text that is kept out of training risen for good? One that swings by less than
// this has not.
bool TrainReport::learns_by_heart(const ValidationRecord& record) {
  constexpr double kRise = 0.02;
  const std::optional<ValidationRecord> best = best_validation(seen_);
  seen_.validation.push_back(record);
  return best && record.loss > best->loss + kRise;
}

double TrainReport::seconds() const {
  return std::chrono::duration<double>(Clock::now() - begin_).count();
}

double TrainReport::tokens_per_second() const {
  return static_cast<double>((last_step_ - first_) * step_tokens_) / std::max(step_seconds_, 1e-9);
}

double TrainReport::seconds_left(std::int64_t step) const {
  const auto done = static_cast<double>(std::max<std::int64_t>(1, step - first_));
  return seconds() / done * static_cast<double>(steps_ - step);
}

void TrainReport::goes_on() {
  step_begin_ = Clock::now();
}

void TrainReport::step(const StepRecord& record) {
  const Clock::time_point now = Clock::now();
  step_seconds_ += std::chrono::duration<double>(now - step_begin_).count();
  step_begin_ = now;
  last_step_ = record.step;
  const bool first = record.step == first_ + 1;
  if (!record.skipped)
    mean_loss_ = first || mean_loss_ == 0.0 ? record.loss : 0.9 * mean_loss_ + 0.1 * record.loss;
  const std::string validation =
      validation_loss_ < 0.0 ? "" : format_text(" (validation {:.3f})", validation_loss_);
  show_status(format_text("{:>{}}/{} [{}] loss {:.3f}{}  {}  {} left", record.step,
                          std::to_string(steps_).size(), steps_, bar(record.step, steps_),
                          mean_loss_, validation, rate(tokens_per_second()),
                          in_words(seconds_left(record.step))));
  if (record.skipped) {
    show_status("");
    print(format_text("step {}: loss {} and gradient norm {}: the step was skipped\n", record.step,
                      record.loss, record.gradient_norm));
    return;
  }
  if (!first && record.step % line_every_ != 0 && record.step != steps_) return;
  show_status("");
  print(format_text("step {:>{}}/{}  loss {:.4f}  learning rate {:.2e}  norm {:.2f}  {}  {} left\n",
                    record.step, std::to_string(steps_).size(), steps_, record.loss,
                    record.learning_rate, record.gradient_norm, rate(tokens_per_second()),
                    in_words(seconds_left(record.step))));
}

void TrainReport::validation(const ValidationRecord& record) {
  validation_loss_ = record.loss;
  show_status("");
  print(format_text("step {:>{}}/{}  validation loss {:.4f}\n", record.step,
                    std::to_string(steps_).size(), steps_, record.loss));
  if (learns_by_heart(record) && !warned_) {
    warned_ = true;
    const ValidationRecord best = *best_validation(seen_);
    print(
        format_text("warning: the validation loss is {:.3f} above its best, {:.3f} at step {}: the "
                    "model is starting to memorise the text; that step is kept\n",
                    record.loss - best.loss, best.loss, best.step));
  }
  goes_on();
}

std::string TrainReport::end(const std::string& folder, const Exported& exported) const {
  const std::string loss = exported.validation_loss
                               ? format_text(", validation loss {:.3f}", *exported.validation_loss)
                               : "";
  return format_text("{}: the model of step {} of {}{}; {}, {:.0f} tokens/s\n", printable(folder),
                     exported.step, last_step_, loss, in_words(seconds()), tokens_per_second());
}

// A sample is one line of UTF-8: line ends and the like become spaces, and bytes that are no
// characters, which an early model writes, U+FFFD.
void TrainReport::sample(const std::string& text) {
  std::string line;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t bytes = first_character(rest).bytes;
    const auto code = static_cast<unsigned char>(rest[0]);
    if (code > ' ') line += bytes == 1 && code >= 0x80 ? "\uFFFD" : rest.substr(0, bytes);
    if (code <= ' ' && !line.empty() && line.back() != ' ') line += ' ';
    rest.remove_prefix(bytes);
  }
  show_status("");
  print(format_text("  | {}\n", printable(line)));
  goes_on();
}

}  // namespace cephalo::cli
