#pragma once

#include <optional>
#include <string>

#include "cephalo/train/best_model.h"
#include "cephalo/train/trainer.h"
#include "cli/train_corpus.h"
#include "cli/train_plan.h"

namespace cephalo::cli {

// What a run exports: the model that validated best, or the last one.
struct Exported {
  std::int64_t step = 0;
  std::optional<double> validation_loss = {};  // where it validated
};

// Into the run's folder, as Hugging Face's GPT-2 would have it: vocab.json and merges.txt are there
// already. The best model is the one that history says; where its file is gone, the last.
Exported export_model(const Gpt& last, const TrainingHistory& history, std::int64_t steps_done,
                      const std::string& folder, const Bpe& bpe, const TrainSettings& settings);

// The commands that a person may want to type next.
std::string what_next(const std::string& folder, const std::string& prompt);

}  // namespace cephalo::cli
