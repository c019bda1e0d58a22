#pragma once

#include "cephalo/attention/attend.h"

namespace cephalo::testing {

// The engines that go backwards: each passes every test of gradients.
inline constexpr Engine kBackwardEngines[] = {Engine::reference};

}  // namespace cephalo::testing
