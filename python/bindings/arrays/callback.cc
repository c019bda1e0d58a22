#include "bindings/arrays/callback.h"

#include <utility>

#include "bindings/arrays/gil.h"
#include "cephalo/core/format.h"

namespace cephalo::python {

namespace nb = nanobind;

Callback::Callback(nb::object function, const char* who, const char* name)
    : function_(std::move(function)) {
  if (function_.is_none() || PyCallable_Check(function_.ptr()) != 0) return;
  throw nb::type_error(format_text("{}: {} must be a function or None, not {}", who, name,
                                   nb::str(function_.type().attr("__name__")).c_str())
                           .c_str());
}

std::function<void(std::int64_t, std::int64_t)> progress_of(const Callback& progress) {
  return [&progress](std::int64_t done, std::int64_t all) {
    const WithGil held;
    check_signals();
    if (progress.given()) progress(done, all);
  };
}

}  // namespace cephalo::python
