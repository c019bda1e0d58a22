#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cephalo/world/world.h"

namespace cephalo::testing {

// What holds in every world, of threads or of processes: each is called by all of them.
using WorldClaim = void (*)(World& world);
const std::vector<std::pair<std::string, WorldClaim>>& world_claims();

}  // namespace cephalo::testing
