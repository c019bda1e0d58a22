#include "bindings/trace.h"

#include <utility>

namespace cephalo::python {

nb::dict trace_dict(Trace&& trace, Kind kind) {
  nb::dict steps;
  for (Step& step : trace.steps) {
    steps[step.key.c_str()] = to_python(std::move(step.value), kind);
  }
  return steps;
}

}  // namespace cephalo::python
