#pragma once

#include "tests/world/world_claims.h"

namespace cephalo::testing {

// What holds for attention over every world, of threads or of processes. Each process computes the
// whole by itself, too, and compares its own rows.
const std::vector<std::pair<std::string, WorldClaim>>& ring_claims();

}  // namespace cephalo::testing
