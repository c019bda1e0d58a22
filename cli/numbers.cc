#include "cli/numbers.h"

#include <charconv>
#include <cmath>
#include <system_error>

#include "cephalo/core/format.h"
#include "cephalo/core/number_text.h"
#include "cli/verbs.h"

namespace cephalo::cli {
namespace {

template <typename T>
bool parse_whole(const std::string& text, T& value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end && !text.empty();
}

bool parse_whole(const std::string& text, double& value) {
  const char* end = text.data() + text.size();
  return read_number(text.data(), end, &value) == end && !text.empty();
}

}  // namespace

std::int64_t parse_integer(const std::string& flag, const std::string& text, std::int64_t low,
                           std::int64_t high) {
  std::int64_t value = 0;
  if (!parse_whole(text, value) || value < low || value > high) {
    throw UsageError(
        format_text("{}: '{}' is not a whole number from {} to {}", flag, text, low, high));
  }
  return value;
}

std::uint64_t parse_seed(const std::string& flag, const std::string& text) {
  std::uint64_t value = 0;
  if (!parse_whole(text, value)) {
    throw UsageError(
        format_text("{}: '{}' is not a whole number from 0 to {}", flag, text, UINT64_MAX));
  }
  return value;
}

double parse_probability(const std::string& flag, const std::string& text) {
  double value = 0.0;
  if (!parse_whole(text, value) || !(value >= 0.0 && value < 1.0)) {
    throw UsageError(format_text("{}: '{}' is not a number from 0 to below 1", flag, text));
  }
  return value;
}

double parse_positive(const std::string& flag, const std::string& text) {
  double value = 0.0;
  if (!parse_whole(text, value) || !std::isfinite(value) || !(value > 0.0)) {
    throw UsageError(format_text("{}: '{}' is not a number above 0", flag, text));
  }
  return value;
}

double parse_tolerance(const std::string& flag, const std::string& text) {
  double value = 0.0;
  if (!parse_whole(text, value) || !std::isfinite(value) || !(value >= 0.0)) {
    throw UsageError(format_text("{}: '{}' is not a number from 0 up", flag, text));
  }
  return value;
}

}  // namespace cephalo::cli
