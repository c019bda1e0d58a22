#pragma once

#include "cephalo/attention/engine/engine.h"

namespace cephalo {

// Works in tiles, in memory linear in tokens. Refuses what cannot be drawn or stored tile by tile.
extern const EngineEntry fused_engine;

}  // namespace cephalo
