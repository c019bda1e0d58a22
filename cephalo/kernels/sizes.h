#pragma once

#include "cephalo/core/shape.h"

namespace cephalo {

// Flops of the kernels that take as long as one of plain code, which parallel_for counts in.
inline constexpr double kFusedSpeed = 32.0;

inline dim_t round_up(dim_t n, dim_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

}  // namespace cephalo
