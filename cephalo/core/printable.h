#pragma once

// Inside the library and its program only.

#include <cstdint>
#include <string>
#include <string_view>

#include "cephalo/core/format.h"

namespace cephalo {

// Text from outside as a terminal may get it: control characters, and those that turn the direction
// of what stands beside them (U+202E), are '?'.
std::string printable(std::string_view text);

// The same for a message, and only when there is one: of a long text the beginning, and how long it
// is. The text must live until then.
struct Shown {
  std::string_view text;
};
inline Shown shown(std::string_view text) {
  return {text};
}
std::string to_string(const Shown& shown);

// 18432 -> "18,432"
std::string with_commas(std::int64_t number);

}  // namespace cephalo
