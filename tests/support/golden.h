#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "cephalo/mask/mask.h"

namespace cephalo::testing {

// A file of tests/golden.
nlohmann::json read_golden(const std::string& name);

// The sampled numbers of a golden tensor against ours: the largest difference, or infinity when the
// shapes differ.
double golden_difference(const nlohmann::json& golden, const TensorView& ours);
double golden_magnitude(const nlohmann::json& golden);  // max |value|

// How many of the sampled float32 (float64) numbers differ in any bit.
int golden_differing_bits(const nlohmann::json& golden, const TensorView& ours);

// The mask of a case of attend.json, by the definitions in make_golden.py.
Mask golden_mask(const nlohmann::json& c);

}  // namespace cephalo::testing
