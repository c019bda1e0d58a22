#pragma once

#include "cephalo/attention/attend.h"

namespace cephalo::testing {

// The engines that have second derivatives and forward mode: each passes every test of them.
inline constexpr Engine kSecondEngines[] = {Engine::reference, Engine::fused};

}  // namespace cephalo::testing
