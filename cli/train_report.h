#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "cephalo/train/history.h"
#include "cli/train_plan.h"

namespace cephalo::cli {

std::string in_words(double seconds);         // "2 min 5 s"
std::string in_bytes(std::int64_t bytes);     // "12.5 MiB"
std::string with_commas(std::int64_t count);  // "1,234,567"

// What will be trained, on what, how long and in how much memory.
std::string describe(const TrainPlan& plan, std::int64_t training_tokens,
                     std::int64_t validation_tokens);

// The course of a run: a bar on a terminal, and a line now and then that stays.
class TrainReport {
 public:
  TrainReport(std::int64_t steps, std::int64_t step_tokens, std::int64_t steps_done);

  void step(const StepRecord& record);
  void validation(const ValidationRecord& record);
  void sample(const std::string& text);
  double seconds() const;  // since it was made

 private:
  double tokens_per_second() const;
  double seconds_left(std::int64_t step) const;

  using Clock = std::chrono::steady_clock;
  std::int64_t steps_, step_tokens_, first_;
  std::int64_t line_every_;
  Clock::time_point begin_;
  std::int64_t last_step_;
  double mean_loss_ = 0.0;  // over the last steps
  double validation_loss_ = -1.0;
};

}  // namespace cephalo::cli
