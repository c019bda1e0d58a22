#pragma once

#include <string>

#include "cephalo/attention/ring/spread.h"
#include "cephalo/core/dtype.h"
#include "cephalo/mask/mask.h"

#pragma GCC visibility push(default)
namespace cephalo {

// Sizes of one call of attend_ring or attend_heads: those of the whole.
struct SpreadShape {
  int processes = 1;
  dim_t batch = 1;
  dim_t num_heads = 1;
  dim_t num_kv_heads = 0;  // 0: num_heads
  dim_t tokens = 0;
  dim_t head_dim = 0;
  dim_t v_dim = 0;  // 0: head_dim
  DType dtype = DType::f32;
  bool backward = false;  // the way back, instead of the way there
};

// What one process does in a second, and what a message costs it.
struct SpreadCosts {
  double flops = 0.0;       // a second, of attention
  double bandwidth = 0.0;   // bytes a second that it sends while as many arrive
  double latency = 0.0;     // seconds that a message takes besides its bytes
  double mean_flops = 0.0;  // of all processes: where they help each other; 0: flops
};

// Attends and exchanges messages for a moment. Every process calls it and gets the figures of the
// slowest, and the mean of flops; `threads`: as in AttendOptions.
SpreadCosts measure_costs(World& world, int threads = 0);

// Which way of spreading takes less time, and what both take. Figures of a process are those of the
// one that has most of it to do.
struct SpreadPlan {
  struct Way {
    std::string refusal;    // why it cannot be; empty: it can
    double flops = 0.0;     // on pairs that positions allow
    double bytes = 0.0;     // that a process sends
    double messages = 0.0;  // likewise
    double memory = 0.0;    // bytes besides q, k, v and what is returned
    double seconds = 0.0;   // the ring: keys travel while others are attended to
  };
  Way ring, heads;
  Spread::By by = Spread::By::ring;
  std::string why;

  std::string to_string() const;
};

// What attend_ring and attend_heads, or their backward passes, will do, without doing it.
SpreadPlan plan(const SpreadShape& shape, const Mask& mask, const SpreadCosts& costs);

const char* name(Spread::By by);  // "ring"

}  // namespace cephalo
#pragma GCC visibility pop
