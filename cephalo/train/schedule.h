#pragma once

#include <cstdint>

#pragma GCC visibility push(default)
namespace cephalo {

// The learning rate over a run: a straight rise, then half a cosine down to a floor.
struct Schedule {
  double learning_rate = 3e-3;  // the highest
  std::int64_t warmup = 200;    // steps of the rise; the last of them has the full rate
  std::int64_t steps = 1000;    // of the whole run; what comes after stays on the floor
  double min_lr_share = 0.1;    // the floor, as a share of learning_rate
};

// step: counted from 0
double learning_rate_at(const Schedule& schedule, std::int64_t step);

}  // namespace cephalo
#pragma GCC visibility pop
