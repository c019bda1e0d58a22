#pragma once

#include "cephalo/attention/engine/engine.h"

namespace cephalo {

extern const EngineEntry cuda_engine;         // tensor cores of Hopper
extern const EngineEntry cuda_simple_engine;  // everything, on any GPU from sm_80 on

}  // namespace cephalo
