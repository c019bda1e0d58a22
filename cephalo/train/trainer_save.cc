#include <cmath>
#include <utility>
#include <vector>

#include "cephalo/core/cpu.h"
#include "cephalo/core/fail.h"
#include "cephalo/train/checkpoint.h"
#include "cephalo/train/trainer_state.h"

namespace cephalo {
namespace {

template <typename T>
bool finite_elements(const TensorView& t) {
  // A sum of all x · 0 is 0 unless one is NaN or infinite; a branch for each would be slow.
  T sum = 0;
  const T* values = t.data_as<T>();
  for (dim_t k = 0; k < t.numel(); ++k) sum += values[k] * T{0};
  return sum == T{0};
}

// t: dense
bool is_finite(const TensorView& t) {
  return t.dtype() == DType::f64 ? finite_elements<double>(t) : finite_elements<float>(t);
}

Tensor table_of(const TrainingHistory& history) {
  Tensor table = Tensor::empty({static_cast<dim_t>(history.steps.size()), 5}, DType::f64);
  auto* to = table.mutable_data_as<double>();
  for (const StepRecord& r : history.steps) {
    for (const double value : {static_cast<double>(r.step), r.loss, r.learning_rate,
                               r.gradient_norm, r.skipped ? 1.0 : 0.0}) {
      *to++ = value;
    }
  }
  return table;
}

Tensor validation_table_of(const TrainingHistory& history) {
  Tensor table = Tensor::empty({static_cast<dim_t>(history.validation.size()), 2}, DType::f64);
  auto* to = table.mutable_data_as<double>();
  for (const ValidationRecord& r : history.validation) {
    *to++ = static_cast<double>(r.step);
    *to++ = r.loss;
  }
  return table;
}

constexpr const char* kStepTable = "history.steps";             // float64, [steps, 5]
constexpr const char* kValidationTable = "history.validation";  // float64, [validations, 2]

Tensor read_table(const CheckpointFile& file, const char* table, dim_t columns) {
  Tensor t = file.read(table);
  require(t.dtype() == DType::f64 && t.rank() == 2 && t.dim(1) == columns,
          "{}: {}: is {} {}, not float64 with {} columns", file.path(), table, name(t.dtype()),
          t.shape(), columns);
  return t;
}

// A step of a history as the table has it: a whole number, later than the one before.
std::int64_t read_step(const CheckpointFile& file, const char* table, double number,
                       std::int64_t before, std::int64_t last) {
  require(number > static_cast<double>(before) && number <= static_cast<double>(last) &&
              number == std::floor(number),
          "{}: {}: step {} cannot follow step {} in a run that is at step {}", file.path(), table,
          number, before, last);
  return static_cast<std::int64_t>(number);
}

// step: that the run is at; the history has one row for each
TrainingHistory read_history(const CheckpointFile& file, std::int64_t step) {
  TrainingHistory history;
  const Tensor steps = read_table(file, kStepTable, 5);
  require(steps.dim(0) == step, "{}: {}: has {} rows, the run is at step {}", file.path(),
          kStepTable, steps.dim(0), step);
  const auto* from = steps.data_as<double>();
  std::int64_t before = 0;
  for (dim_t k = 0; k < steps.dim(0); ++k, from += 5) {
    before = read_step(file, kStepTable, from[0], before, step);
    history.steps.push_back({before, from[1], from[2], from[3], from[4] != 0.0});
  }
  const Tensor validation = read_table(file, kValidationTable, 2);
  from = validation.data_as<double>();
  before = -1;
  for (dim_t k = 0; k < validation.dim(0); ++k, from += 2) {
    before = read_step(file, kValidationTable, from[0], before, step);
    history.validation.push_back({before, from[1]});
  }
  return history;
}

constexpr const char* kMean = "adamw.mean.";
constexpr const char* kMeanSquare = "adamw.mean_square.";

// Before a model is made by what the state says: the tensors are those of such a model, three for
// each parameter, so a few bytes cannot ask for all the memory there is.
void check_numbers(const CheckpointFile& file, const GptOptions& model) {
  dim_t numbers = 0;
  for (const SafetensorsFile::Entry& entry : file.entries()) {
    const bool other =
        entry.name == kStepTable || entry.name == kValidationTable || entry.name == kChecksumTensor;
    if (!other) numbers = checked_add(numbers, numel(entry.shape));
  }
  const dim_t parameters = parameter_count(model);
  require(numbers % 3 == 0 && numbers / 3 == parameters,
          "{}: tensors: {} numbers, the model that the state describes has {} parameters and twice "
          "as many moments",
          file.path(), numbers, parameters);
}

}  // namespace

Moments Trainer::State::whole_moments() {
  Moments whole;
  const auto transfers = world.transfers();
  const auto collect = [&](Tensor AdamWState::*which, std::vector<TensorView>& to) {
    std::vector<MutableTensorView> rooms;
    for (const GptParameter& p : parameters) {
      if (world.rank() != 0) break;
      Tensor& room =
          world.size() == 1
              ? adamw[rooms.size()].*which  // all of them are here
              : whole.gathered.emplace_back(Tensor::empty(p.value.shape(), p.value.dtype()));
      rooms.emplace_back(room.mutable_view().mutable_data(), p.value.dtype(), p.value.shape());
    }
    to.assign(rooms.begin(), rooms.end());
    if (world.size() == 1) return;
    std::size_t mine = 0;
    for (std::size_t p = 0; p < parts.size(); ++p) {
      const Part& part = parts[p];
      const bool here = part.owner == world.rank();
      const TensorView from = here ? TensorView(adamw[mine++].*which) : TensorView();
      if (world.rank() != 0) {
        if (here) transfers->send(0, static_cast<int>(p), bytes_of(from));
      } else if (here) {
        elements_of(rooms[part.parameter], part.elements).copy_from(from);
      } else {
        transfers->receive(part.owner, static_cast<int>(p),
                           bytes_of(elements_of(rooms[part.parameter], part.elements)));
      }
    }
  };
  whole.gathered.reserve(2 * parameters.size());
  collect(&AdamWState::mean, whole.mean);
  collect(&AdamWState::mean_square, whole.mean_square);
  transfers->wait();
  return whole;
}

void Trainer::save(const std::string& path) const {
  State& s = *state_;
  const Moments moments = s.whole_moments();
  if (s.world.rank() != 0) return;
  std::vector<std::pair<std::string, TensorView>> tensors;
  for (const GptParameter& p : s.parameters)
    tensors.emplace_back(p.name, s.model.parameter(p.name));
  for (std::size_t k = 0; k < s.parameters.size(); ++k) {
    tensors.emplace_back(kMean + s.parameters[k].name, moments.mean[k]);
    tensors.emplace_back(kMeanSquare + s.parameters[k].name, moments.mean_square[k]);
  }
  for (const auto& [tensor, view] : tensors) {
    require(is_finite(view),
            "{}: {}: has numbers that are NaN or infinite after step {}; nothing was saved and the "
            "previous checkpoint is unchanged",
            path, tensor, s.progress.step);
  }
  const Tensor steps = table_of(s.history);
  const Tensor validation = validation_table_of(s.history);
  tensors.emplace_back(kStepTable, steps);
  tensors.emplace_back(kValidationTable, validation);
  GptOptions model = s.model.options();
  model.seed = s.model.seed();
  write_checkpoint(
      path, tensors,
      to_json({s.progress, {s.progress.step, model, s.options, name(current_isa()), s.notes}}));
}

void Trainer::load(const std::string& path) {
  State& s = *state_;
  const CheckpointFile file(path);
  TrainerState loaded = trainer_state_from_json(file.state(), path);
  check_trainer_options(loaded.summary.options, s.model.options());
  s.check_processes(loaded.summary.options);
  require(loaded.summary.model.seed == s.model.seed(),
          "{}: seed: is {}, the model's is {}; make the model with the seed of the checkpoint",
          path, loaded.summary.model.seed.value_or(0), s.model.seed());
  TrainingHistory history = read_history(file, loaded.progress.step);
  // All of them are looked at before the first is changed.
  for (const GptParameter& p : s.parameters) {
    for (const char* of : {"", kMean, kMeanSquare}) file.check(of + p.name, p.value);
  }
  s.model.update_all([&](std::size_t, const std::string& parameter, const MutableTensorView& p) {
    file.read_into(parameter, p);
  });
  for (std::size_t k = 0; k < s.own.size(); ++k) {
    const auto read_own = [&](const char* of, Tensor& to) {
      const Tensor whole = file.read(of + s.parameters[s.own[k].parameter].name);
      to.mutable_view().copy_from(elements_of(TensorView(whole), s.own[k].elements));
    };
    read_own(kMean, s.adamw[k].mean);
    read_own(kMeanSquare, s.adamw[k].mean_square);
  }
  s.progress = loaded.progress;
  s.set_options(loaded.summary.options);
  s.notes = loaded.summary.notes;
  s.history = std::move(history);
}

CheckpointSummary read_checkpoint_summary(const std::string& path) {
  const CheckpointFile file(path);
  CheckpointSummary summary = trainer_state_from_json(file.state(), path).summary;
  check_numbers(file, summary.model);
  return summary;
}

}  // namespace cephalo
