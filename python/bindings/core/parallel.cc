#include "cephalo/core/parallel.h"

#include <nanobind/stl/optional.h>

#include <optional>

#include "bindings/bindings.h"
#include "cephalo/core/cpu.h"

namespace cephalo::python {

void bind_parallel(nb::module_& m) {
  m.def(
      "threads",
      [](std::optional<int> count) {
        if (count) set_threads(*count);
        return threads();
      },
      "count"_a = nb::none(),
      "Sets how many threads each call uses (0: one per core) and returns that number.\n"
      "Results do not depend on it.");
  m.def(
      "isa", [] { return name(current_isa()); },
      "The instruction set in use: avx512, avx2, sse4, neon or scalar.");
}

}  // namespace cephalo::python
