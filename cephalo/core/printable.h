#pragma once

// Inside the library and its program only.
#include <fmt/format.h>

#include <string>
#include <string_view>

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

}  // namespace cephalo

template <>
struct fmt::formatter<cephalo::Shown> {
  static constexpr auto parse(const fmt::format_parse_context& context) { return context.begin(); }
  template <typename Context>
  auto format(const cephalo::Shown& shown, Context& context) const {
    return fmt::format_to(context.out(), "{}", cephalo::to_string(shown));
  }
};
