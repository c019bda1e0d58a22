#pragma once

// Inside the library only.
#include <vector>

#include "cephalo/core/shape.h"

namespace cephalo {

// Where a run's rows lie among those of all, and where they stand in its text.
struct RunRows {
  dim_t at = 0;
  dim_t tokens = 0;
  dim_t first = 0;  // position of its first row
};

// One after the other, without gaps.
using RunLayout = std::vector<RunRows>;
inline dim_t rows_of(const RunLayout& runs) {
  return runs.empty() ? 0 : runs.back().at + runs.back().tokens;
}
inline void append_run(RunLayout& runs, dim_t tokens, dim_t first) {
  runs.push_back({rows_of(runs), tokens, first});
}

}  // namespace cephalo
