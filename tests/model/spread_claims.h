#pragma once

#include "tests/world/world_claims.h"

namespace cephalo::testing {

// What holds for layers and models whose tokens are spread over a world. Each process computes the
// whole by itself, too, and compares its own rows.
const std::vector<std::pair<std::string, WorldClaim>>& spread_claims();

}  // namespace cephalo::testing
