#pragma once

#include "cephalo/attention/attend.h"

namespace cephalo::testing {

// The engines of the host that go backwards: each passes every test of gradients.
inline constexpr Engine kBackwardEngines[] = {Engine::reference, Engine::fused};

// Those of them that have weights, maps and row sums too.
inline constexpr Engine kWeightsEngines[] = {Engine::reference, Engine::fused};

}  // namespace cephalo::testing
