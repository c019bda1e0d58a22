#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "cephalo/learn/ladder.h"

namespace cephalo::testing {

// The layer of a golden case of ladder.json.
std::unique_ptr<MultiHeadAttention> golden_layer(const nlohmann::json& c);

// The case without parameters and results: what a failure prints.
std::string headline(nlohmann::json c);

}  // namespace cephalo::testing
