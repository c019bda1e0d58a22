#include "cephalo/train/schedule.h"

#include <cmath>
#include <numbers>

#include "cephalo/core/fail.h"

namespace cephalo {

double learning_rate_at(const Schedule& s, std::int64_t step) {
  constexpr const char* kName = "learning_rate_at";
  require(s.learning_rate >= 0.0, "{}: learning_rate ({}) must be >= 0", kName, s.learning_rate);
  require(s.min_lr_share >= 0.0 && s.min_lr_share <= 1.0, "{}: min_lr_share ({}) must be in [0, 1]",
          kName, s.min_lr_share);
  require(s.warmup >= 0 && s.steps >= 0 && step >= 0,
          "{}: warmup ({}), steps ({}) and step ({}) must be >= 0", kName, s.warmup, s.steps, step);
  if (step < s.warmup) {
    return s.learning_rate * static_cast<double>(step + 1) / static_cast<double>(s.warmup);
  }
  const double floor = s.learning_rate * s.min_lr_share;
  if (step >= s.steps) return floor;
  const double done =
      static_cast<double>(step - s.warmup) / static_cast<double>(s.steps - s.warmup);
  return floor + 0.5 * (s.learning_rate - floor) * (1.0 + std::cos(std::numbers::pi * done));
}

}  // namespace cephalo
