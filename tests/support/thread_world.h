#pragma once

#include <functional>

#include "cephalo/world/world.h"

namespace cephalo::testing {

// Calls body(world) on `size` threads at once, each with its place in one world of them all.
// Messages are bytes in memory: what works here and not over MPI, or the other way round, is about
// MPI. The first exception is thrown here, when all threads have ended.
void run_in_threads(int size, const std::function<void(World&)>& body);

}  // namespace cephalo::testing
