#pragma once

#include <cstdint>
#include <string>

#include "cephalo/train/trainer.h"

namespace cephalo {

// Where a run stands. Everything random is a function of the model's seed and of these counts, so
// they are the state of the generators, too.
struct TrainerProgress {
  std::int64_t step = 0;     // steps taken
  std::int64_t updates = 0;  // of them, those that changed the parameters
  std::int64_t passes = 0;   // calls of train_pass: dropout's number
  std::int64_t rows = 0;     // taken from the source: the position in the data
  int skipped = 0;           // steps in a row that changed nothing
};

// What a checkpoint says in JSON.
struct TrainerState {
  TrainerProgress progress;
  CheckpointSummary summary;
};

std::string to_json(const TrainerState& state);
// path: for messages
TrainerState trainer_state_from_json(const std::string& json, const std::string& path);

}  // namespace cephalo
