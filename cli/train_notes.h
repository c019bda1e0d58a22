#pragma once

#include <string>
#include <vector>

#include "cli/train_plan.h"

namespace cephalo::cli {

// What `cephalo train` must know of a run to go on with it, beside what a Trainer saves.
struct TrainNotes {
  std::vector<std::string> files;
  dim_t training_tokens = 0;  // the first of the token file; what follows is for validation
  TrainSettings settings;
};

std::string to_json(const TrainNotes& notes);
TrainNotes train_notes_from_json(const std::string& json, const std::string& path);

}  // namespace cephalo::cli
