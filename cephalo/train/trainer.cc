#include "cephalo/train/trainer.h"

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "cephalo/core/fail.h"
#include "cephalo/io/json.h"
#include "cephalo/train/clip_factor.h"
#include "cephalo/train/trainer_state.h"

namespace cephalo {
namespace {

constexpr const char* kName = "Trainer";

}  // namespace

void check_trainer_options(const TrainerOptions& o, const GptOptions& model) {
  require(o.batch >= 1 && o.accumulate >= 1, "{}: batch ({}) and accumulate ({}) must be >= 1",
          kName, o.batch, o.accumulate);
  require(o.shards >= 1 && o.batch % o.shards == 0, "{}: shards ({}) must divide batch ({})", kName,
          o.shards, o.batch);
  require(o.context_length >= 1 && o.context_length <= model.context_length,
          "{}: context_length ({}) must be from 1 to the model's {}", kName, o.context_length,
          model.context_length);
  require(o.clip >= 0.0, "{}: clip ({}) must be >= 0", kName, o.clip);
  require(o.beta1 >= 0.0 && o.beta1 < 1.0 && o.beta2 >= 0.0 && o.beta2 < 1.0,
          "{}: beta1 ({}) and beta2 ({}) must be in [0, 1)", kName, o.beta1, o.beta2);
  require(o.eps >= 0.0 && o.weight_decay >= 0.0, "{}: eps ({}) and weight_decay ({}) must be >= 0",
          kName, o.eps, o.weight_decay);
  require(o.max_skipped >= 1, "{}: max_skipped ({}) must be >= 1", kName, o.max_skipped);
  static_cast<void>(learning_rate_at(o.schedule, 0));
}

Trainer::Trainer(Gpt& model, RowSource rows, const TrainerOptions& options, World* world) {
  TrainerOptions full = options;
  if (full.context_length == 0) full.context_length = model.options().context_length;
  check_trainer_options(full, model.options());
  require(rows != nullptr, "{}: there is no source of rows", kName);
  state_ = std::make_unique<State>(model, std::move(rows), full, world);
}

Trainer::~Trainer() = default;

std::int64_t Trainer::steps_done() const {
  return state_->progress.step;
}

const TrainerOptions& Trainer::options() const {
  return state_->options;
}

const TrainingHistory& Trainer::history() const {
  return state_->history;
}

void Trainer::set_steps(std::int64_t steps) {
  require(steps >= 0, "{}: steps ({}) must be >= 0", kName, steps);
  state_->options.schedule.steps = steps;
}

void Trainer::set_notes(const std::string& notes) {
  // Half of what a checkpoint may say of a run: in its header quotes are escaped once more.
  constexpr JsonLimits kNotes = {
      .bytes = std::int64_t{3} << 20, .values = 150'000, .string_bytes = 1 << 20, .depth = 32};
  require(parse_json(notes, std::string(kName) + ": notes", kNotes).is_object(),
          "{}: notes: are not a JSON object", kName);
  state_->notes = notes;
}

StepRecord Trainer::step() {
  State& s = *state_;
  StepRecord record;
  record.learning_rate = learning_rate_at(s.options.schedule, s.progress.step);
  record.loss = s.add_gradients();
  record.gradient_norm = s.gradient_norm();
  const double largest =
      s.options.clip > 0.0 ? s.options.clip : std::numeric_limits<double>::infinity();
  record.skipped = !std::isfinite(record.loss) || !std::isfinite(record.gradient_norm);
  if (!record.skipped) s.update(record.learning_rate, clip_factor(record.gradient_norm, largest));
  record.step = ++s.progress.step;
  s.progress.skipped = record.skipped ? s.progress.skipped + 1 : 0;
  s.history.steps.push_back(record);
  require(
      s.progress.skipped < s.options.max_skipped,
      "{}: {} steps in a row up to step {} had no finite gradient (loss {}, norm {}) and changed "
      "nothing; a learning rate below {} or a smaller clip may help",
      kName, s.progress.skipped, record.step, record.loss, record.gradient_norm,
      record.learning_rate);
  return record;
}

double Trainer::validation_loss(const RowSource& source, std::int64_t rows) const {
  require(rows >= 1, "{}: validation needs at least one row", kName);
  const bool one_shard = state_->options.shards == 1;
  return one_shard ? state_->loss_of_passes(source, rows) : state_->loss_of_rows(source, rows);
}

bool Trainer::run(const RunOptions& run) {
  State& s = *state_;
  const bool saves = s.world.any(run.folder != nullptr);
  const auto save_now = [&] {
    if (!saves) return;
    save(run.folder != nullptr ? run.folder->checkpoint(s.progress.step) : std::string());
    if (run.folder != nullptr) run.folder->saved(s.progress.step);
    if (run.on_saved) run.on_saved(s.progress.step);
  };
  // A disk that cannot hold a checkpoint is told before hours are spent.
  if (s.progress.step == 0) save_now();
  bool stopped = false;
  while (s.progress.step < s.options.schedule.steps && !stopped) {
    const StepRecord record = step();
    const bool last = record.step >= s.options.schedule.steps;
    if (run.on_step) run.on_step(record);
    const bool validates = run.validation && run.validation_rows > 0 && run.validate_every > 0;
    if (validates && (last || record.step % run.validate_every == 0)) {
      const ValidationRecord seen{record.step,
                                  validation_loss(run.validation, run.validation_rows)};
      s.history.validation.push_back(seen);
      if (run.on_validation) run.on_validation(seen);
    }
    stopped = !last && s.world.any(run.stop && run.stop());
    const bool due = run.save_every > 0 && record.step % run.save_every == 0;
    if (last || stopped || due) save_now();
  }
  return !stopped;
}

}  // namespace cephalo
