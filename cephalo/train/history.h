#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#pragma GCC visibility push(default)
namespace cephalo {

// What one step of training was like.
struct StepRecord {
  std::int64_t step = 0;  // 1 for the first
  double loss = 0.0;      // mean over the tokens of the step, before its update
  double learning_rate = 0.0;
  double gradient_norm = 0.0;  // before clipping
  bool skipped = false;        // loss or norm was not finite: nothing was changed
};

// The loss on rows kept out of training, after a step.
struct ValidationRecord {
  std::int64_t step = 0;
  double loss = 0.0;
};

// What a run has seen so far. There are no times in it: a run that was interrupted writes the same
// curve as one that was not.
struct TrainingHistory {
  std::vector<StepRecord> steps;
  std::vector<ValidationRecord> validation;
};

// The lowest finite loss; of equals the first. Nothing where there is none.
std::optional<ValidationRecord> best_validation(const TrainingHistory& history);

// "step,loss,learning_rate,gradient_norm,skipped,validation_loss", a line for each step; numbers
// are the shortest that read back as the same.
std::string loss_csv(const TrainingHistory& history);

// The two curves as a self-contained picture.
std::string loss_svg(const TrainingHistory& history, const std::string& title);

}  // namespace cephalo
#pragma GCC visibility pop
