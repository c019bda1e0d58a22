#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "cephalo/train/history.h"
#include "cli/train_export.h"
#include "cli/train_plan.h"

namespace cephalo::cli {

std::string in_words(double seconds);      // "2 min 5 s"
std::string in_bytes(std::int64_t bytes);  // "12.5 MiB"

// What will be trained, on what, how long and in how much memory of each process.
std::string describe(const TrainPlan& plan, std::int64_t training_tokens,
                     std::int64_t validation_tokens, int processes);

// The course of a run: a bar on a terminal, and a line now and then that stays.
class TrainReport {
 public:
  // history: of a run that goes on. A line for each of line_every steps; 0: about twenty in all.
  TrainReport(const TrainerOptions& options, const TrainingHistory& history,
              std::int64_t line_every);

  void step(const StepRecord& record);
  void validation(const ValidationRecord& record);
  void sample(const std::string& text);
  std::string end(const std::string& folder, const Exported& exported) const;
  void goes_on();                    // what was done since the last step was no training
  double seconds() const;            // since it was made
  double tokens_per_second() const;  // of the steps alone

 private:
  double seconds_left(std::int64_t step) const;
  bool learns_by_heart(const ValidationRecord& record);

  using Clock = std::chrono::steady_clock;
  std::int64_t steps_, step_tokens_, first_;
  std::int64_t line_every_;
  Clock::time_point begin_, step_begin_;
  double step_seconds_ = 0.0;  // of all steps
  std::int64_t last_step_;
  double mean_loss_ = 0.0;  // over the last steps
  double validation_loss_ = -1.0;
  TrainingHistory seen_;  // its validations alone
  bool warned_ = false;   // that the model learns by heart: once in a run
};

}  // namespace cephalo::cli
