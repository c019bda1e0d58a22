#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cephalo/attention/layer/parameters.h"
#include "cephalo/attention/reference/trace.h"

namespace cephalo::cli {

// A finished trace and what is printed around it.
struct TraceRun {
  std::string text;
  std::vector<std::string> tokens;
  int rung = 5;
  std::uint64_t seed = 123;
  dim_t num_heads = 1;
  dim_t head_dim = 1;  // what the scale is made from
  dim_t head = 0;      // the head to show
  dim_t batch = 1;
  dim_t sequence = 0;  // the one of the batch to show
  bool drawn = true;   // some number came from the seed
  Trace trace;
  std::vector<NamedParameter> parameters;  // empty unless asked for; borrowed from the layer
};

// "MultiHeadAttention: 12 heads x 64 = 768, seed 123"
std::string title_of(const TraceRun& run);
// One line on what the numbers are worth.
std::string warning_of(const TraceRun& run);

std::string trace_as_text(const TraceRun& run);
std::string trace_as_explanation(const TraceRun& run);
std::string trace_as_json(const TraceRun& run);

}  // namespace cephalo::cli
