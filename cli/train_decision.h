#pragma once

#include <optional>
#include <string>

#include "cephalo/train/run_folder.h"
#include "cephalo/train/trainer.h"
#include "cephalo/world/world.h"
#include "cli/train_corpus.h"
#include "cli/train_flags.h"

namespace cephalo::cli {

// What process 0 decides for all: the texts, the sizes, where to begin.
struct Decision {
  std::string folder;
  std::string checkpoint;     // to continue from; empty: from the beginning
  CheckpointSummary summary;  // the model, its training, and TrainNotes
};

// What process 0 has opened meanwhile.
struct Holdings {
  std::optional<RunFolder> folder;
  std::optional<TrainCorpus> corpus;
};

// Before there is anything for the others to do: prints the plan.
Decision decide(const TrainFlags& flags, const World& world, Holdings& here);

// Process 0's decision, on every process.
Decision heard(const Decision& mine, World& world);

std::string choose_folder(const TrainFlags& flags);

}  // namespace cephalo::cli
