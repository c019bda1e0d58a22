#pragma once

#include <utility>

#include "cephalo/core/error.h"
#include "cephalo/core/format.h"
#include "cephalo/core/shape.h"

namespace cephalo {

// Messages are formatted only when they are needed: checks run on every call.
template <typename... Args>
[[noreturn]] void fail(Error::Kind kind, Pattern<Args...> pattern, const Args&... args) {
  throw Error(kind, format_text(pattern, args...));
}

// Throws a value error unless `holds`.
template <typename... Args>
void require(bool holds, Pattern<Args...> pattern, const Args&... args) {
  if (!holds) fail(Error::Kind::value, pattern, args...);
}

// The same for element types.
template <typename... Args>
void require_type(bool holds, Pattern<Args...> pattern, const Args&... args) {
  if (!holds) fail(Error::Kind::type, pattern, args...);
}

}  // namespace cephalo
