#pragma once

#include "cephalo/attention/engine/engine.h"

namespace cephalo {

// The textbook: every step is stored. Refuses nothing.
extern const EngineEntry reference_engine;

}  // namespace cephalo
