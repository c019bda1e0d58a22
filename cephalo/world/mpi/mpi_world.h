#pragma once

#include <memory>

#include "cephalo/world/world.h"

namespace cephalo {

// MPI's world of processes. Only point-to-point messages are MPI's: its sums promise no order.
// MPI_THREAD_FUNNELED: the thread that calls this is the one that works with the world.
std::unique_ptr<World> open_mpi_world();

}  // namespace cephalo
