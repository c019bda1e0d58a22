#pragma once

#include <cmath>

namespace cephalo {

// What gradients of this norm are multiplied by; 1: nothing to do, also for a norm that is no
// number.
inline double clip_factor(double norm, double max_norm) {
  const double factor = max_norm / (norm + 1e-6);
  return !std::isfinite(norm) || factor >= 1.0 ? 1.0 : factor;
}

}  // namespace cephalo
