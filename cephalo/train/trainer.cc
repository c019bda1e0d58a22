#include "cephalo/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "cephalo/core/fail.h"
#include "cephalo/io/json.h"
#include "cephalo/train/clip.h"
#include "cephalo/train/loss.h"
#include "cephalo/train/trainer_state.h"

namespace cephalo {
namespace {

constexpr const char* kName = "Trainer";

// One pass: what is read and what is to be predicted.
struct Batch {
  Tensor ids;      // [batch, tokens]
  Tensor targets;  // [batch · tokens]

  Batch(dim_t batch, dim_t tokens)
      : ids(Tensor::empty({batch, tokens}, DType::i64)),
        targets(Tensor::empty({batch * tokens}, DType::i64)),
        row(static_cast<std::size_t>(tokens) + 1) {}

  void fill(const RowSource& source, std::int64_t first_row) {
    const dim_t tokens = ids.dim(1);
    for (dim_t b = 0; b < ids.dim(0); ++b) {
      source(first_row + b, row);
      auto* read = ids.mutable_data_as<std::int64_t>() + b * tokens;
      auto* wanted = targets.mutable_data_as<std::int64_t>() + b * tokens;
      for (dim_t t = 0; t < tokens; ++t) {
        read[t] = row[static_cast<std::size_t>(t)];
        wanted[t] = row[static_cast<std::size_t>(t) + 1];
      }
    }
  }

  std::vector<std::int64_t> row;  // [tokens + 1]
};

}  // namespace

void check_trainer_options(const TrainerOptions& o, const GptOptions& model) {
  require(o.batch >= 1 && o.accumulate >= 1, "{}: batch ({}) and accumulate ({}) must be >= 1",
          kName, o.batch, o.accumulate);
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

// The gradient of the mean loss over all tokens of the step; returns that loss.
double Trainer::State::accumulate_gradients() {
  gradients.zero();
  Batch batch(options.batch, options.context_length);
  const dim_t all = options.accumulate * batch.targets.numel();
  double loss = 0.0;
  for (dim_t pass = 0; pass < options.accumulate; ++pass) {
    batch.fill(rows, progress.rows + pass * options.batch);
    const auto block_loss = [&](dim_t first, const MutableTensorView& logits) {
      const TensorView targets = batch.targets.slice(0, first, first + logits.dim(0));
      return cross_entropy_share(logits, targets, all, logits);
    };
    PassOptions pass_options;
    pass_options.call = static_cast<std::uint64_t>(progress.passes + pass);
    pass_options.workspace = &workspace;
    loss += model.train_pass(batch.ids, block_loss, gradients, pass_options);
  }
  // Only now: where a row could not be had, no part of the step was taken.
  progress.passes += options.accumulate;
  progress.rows += options.accumulate * options.batch;
  return loss;
}

void Trainer::State::update(double learning_rate) {
  AdamWOptions step{learning_rate, options.beta1, options.beta2, options.eps, 0.0};
  model.update_all([&](std::size_t index, const std::string&, const MutableTensorView& p) {
    step.weight_decay = is_decayed(parameters[index].kind) ? options.weight_decay : 0.0;
    adamw[index].step = progress.updates;
    adamw_step(p, gradients.tensors()[index], adamw[index], step);
  });
  ++progress.updates;
}

Trainer::Trainer(Gpt& model, RowSource rows, const TrainerOptions& options) {
  TrainerOptions full = options;
  if (full.context_length == 0) full.context_length = model.options().context_length;
  check_trainer_options(full, model.options());
  require(rows != nullptr, "{}: there is no source of rows", kName);
  state_ = std::make_unique<State>(model, std::move(rows), full);
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
  record.loss = s.accumulate_gradients();
  const double largest =
      s.options.clip > 0.0 ? s.options.clip : std::numeric_limits<double>::infinity();
  record.gradient_norm = clip_gradient_norm(s.gradients.tensors(), largest);
  record.skipped = !std::isfinite(record.loss) || !std::isfinite(record.gradient_norm);
  if (!record.skipped) s.update(record.learning_rate);
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
  State& s = *state_;
  require(rows >= 1, "{}: validation needs at least one row", kName);
  const dim_t all = checked_mul(rows, s.options.context_length);
  double loss = 0.0;
  for (std::int64_t first = 0; first < rows; first += s.options.batch) {
    Batch batch(std::min(s.options.batch, rows - first), s.options.context_length);
    batch.fill(source, first);
    PassOptions pass_options;
    pass_options.workspace = &s.workspace;
    loss += s.model.loss_pass(
        batch.ids,
        [&](dim_t begin, const MutableTensorView& logits) {
          return cross_entropy_share(logits, batch.targets.slice(0, begin, begin + logits.dim(0)),
                                     all);
        },
        pass_options);
  }
  return loss;
}

bool Trainer::run(const RunOptions& run) {
  State& s = *state_;
  const auto save_now = [&] {
    if (run.folder == nullptr) return;
    save(run.folder->checkpoint(s.progress.step));
    run.folder->saved(s.progress.step);
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
    stopped = !last && run.stop && run.stop();
    const bool due = run.save_every > 0 && record.step % run.save_every == 0;
    if (last || stopped || due) save_now();
  }
  return !stopped;
}

}  // namespace cephalo
