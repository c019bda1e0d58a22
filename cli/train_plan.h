#pragma once

#include <cstdint>
#include <string>

#include "cephalo/train/trainer.h"
#include "cli/train_flags.h"

namespace cephalo::cli {

// What a run does beside what a Trainer knows; kept in its checkpoints.
struct TrainSettings {
  double repeat_share = 0.0;
  bool repeat_sentences = false;  // half of them; runs begun before there were such rows have none
  std::int64_t save_every = 0;
  std::int64_t sample_every = 0;
  std::int64_t validate_every = 0;
  std::int64_t validation_rows = 0;
  std::string prompt;
  bool bf16_export = false;
  bool export_last = false;  // otherwise the model that validated best
};

struct TrainPlan {
  GptOptions model;
  TrainerOptions trainer;
  TrainSettings settings;
  double seconds = 0.0;  // about, for the whole run on this machine
};

// The recipe for a text on this machine, with what the flags say instead.
TrainPlan choose_plan(const TrainFlags& flags, std::int64_t vocab_size,
                      std::int64_t training_tokens, std::int64_t validation_tokens);

// Tokens of a row in the smallest plan.
dim_t shortest_row(const TrainFlags& flags);

// Wrong usage is told before a long text is read.
void check_train_flags(const TrainFlags& flags);

// A flag that says something else than the run that is resumed is wrong usage.
void refuse_other_sizes(const TrainFlags& flags, const GptOptions& model,
                        const TrainerOptions& trainer, const TrainSettings& settings);
// Those that may be said anew.
void apply_to_resumed(const TrainFlags& flags, TrainSettings& settings);

std::int64_t available_memory();  // bytes that can be had without pushing others out; 0: unknown

}  // namespace cephalo::cli
