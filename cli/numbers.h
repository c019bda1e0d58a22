#pragma once

#include <cstdint>
#include <string>

namespace cephalo::cli {

// Whole numbers and decimals as they stand in a flag, whatever the locale: nothing before or after
// the digits, within the range; otherwise a UsageError that names flag, value and range.
std::int64_t parse_integer(const std::string& flag, const std::string& text, std::int64_t low,
                           std::int64_t high);
std::uint64_t parse_seed(const std::string& flag, const std::string& text);
double parse_probability(const std::string& flag, const std::string& text);  // in [0, 1)
double parse_positive(const std::string& flag, const std::string& text);     // finite, > 0
double parse_tolerance(const std::string& flag, const std::string& text);    // finite, >= 0

}  // namespace cephalo::cli
