#pragma once

#include "cephalo/core/parallel.h"

namespace cephalo {

// Calls body(k) for every k below count: whole calls of the library beside each other, each on one
// thread, as many at once as there are threads. Regions within them stay in their thread.
template <typename Body>
void side_by_side(dim_t count, Body&& body) {
  constexpr double kWorthThreads = 1e12;
  parallel_for(Region{count, kWorthThreads}, [&](dim_t k, std::byte*) { body(k); });
}

}  // namespace cephalo
