#pragma once

// Inside the library only: public headers do not need fmt.
#include <fmt/format.h>

#include <utility>

#include "cephalo/core/error.h"
#include "cephalo/core/shape.h"

// Shapes are written into a message only when there is one: checks run on every call.
template <>
struct fmt::formatter<cephalo::Dims> {
  static constexpr auto parse(const fmt::format_parse_context& context) { return context.begin(); }
  template <typename Context>
  auto format(const cephalo::Dims& dims, Context& context) const {
    return fmt::format_to(context.out(), "[{}]", fmt::join(dims.begin(), dims.end(), ", "));
  }
};

namespace cephalo {

template <typename... Args>
[[noreturn]] void fail(Error::Kind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

// Throws a value error unless `holds`. The message is only formatted when it is needed.
template <typename... Args>
void require(bool holds, fmt::format_string<Args...> format, Args&&... args) {
  if (!holds) fail(Error::Kind::value, format, std::forward<Args>(args)...);
}

// The same for element types.
template <typename... Args>
void require_type(bool holds, fmt::format_string<Args...> format, Args&&... args) {
  if (!holds) fail(Error::Kind::type, format, std::forward<Args>(args)...);
}

}  // namespace cephalo
