#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cephalo/train/adamw.h"
#include "cephalo/train/gradient_exchange.h"
#include "cephalo/train/parts.h"
#include "cephalo/train/shard_schedule.h"
#include "cephalo/train/trainer.h"
#include "cephalo/train/trainer_json.h"

namespace cephalo {

// What AdamW remembers of whole parameters, in their order.
struct Moments {
  std::vector<TensorView> mean, mean_square;
  std::vector<Tensor> gathered;  // what these look at, where other processes have some of it
};

// What a trainer holds: trainer.cc leads, trainer_step.cc changes it, trainer_save.cc writes and
// reads it.
struct Trainer::State {
  State(Gpt& the_model, RowSource the_rows, const TrainerOptions& the_options, World* the_world);

  // One step in three: gradients of the mean loss over all tokens of the step, their norm, and what
  // they change.
  double add_gradients();  // -> that loss
  double gradient_norm();
  void update(double learning_rate, double factor);

  // The mean of one loss for each row, rows in their order.
  double loss_of_rows(const RowSource& source, std::int64_t count);
  // The same in passes of `batch` rows: what runs of one shard have always said.
  double loss_of_passes(const RowSource& source, std::int64_t count);

  // Options may be others from now on.
  void set_options(const TrainerOptions& changed);
  void check_processes(const TrainerOptions& changed) const;  // throws where there are too many
  Moments whole_moments();                                    // on process 0

  Gpt& model;
  RowSource rows;
  TrainerOptions options;
  std::unique_ptr<World> alone;  // where no other world was given
  World& world;
  TrainerProgress progress;
  TrainingHistory history;
  std::vector<GptParameter> parameters;
  std::vector<Part> parts;        // of all processes
  std::vector<Part> own;          // of them, those of this process
  std::vector<AdamWState> adamw;  // of those: [elements]
  std::optional<GradientExchange> exchange;
  std::vector<GptGradients> sums;            // buffers of the schedule
  std::vector<GptWorkspace> workspaces;      // of the shards that are computed at the same time
  std::vector<MutableTensorView> gradients;  // of own parts: [elements]
  std::string notes = "{}";

 private:
  void train_wave(const ShardSchedule& schedule, const ShardWave& wave,
                  std::vector<double>& losses);
};

void check_trainer_options(const TrainerOptions& options, const GptOptions& model);

}  // namespace cephalo
