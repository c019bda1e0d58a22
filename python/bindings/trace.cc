#include "bindings/trace.h"

#include <nanobind/stl/string.h>

#include <utility>

namespace cephalo::python {
namespace {

nb::tuple tuple_of(const Dims& dims) {
  nb::list list;
  for (const dim_t dim : dims) list.append(dim);
  return nb::tuple(list);
}

}  // namespace

nb::dict trace_dict(Trace&& trace, Kind kind) {
  const nb::module_ types = nb::module_::import_("cephalo._trace");
  nb::list steps;
  for (Step& step : trace.steps) {
    steps.append(types.attr("Step")(step.number, step.name, step.key, step.formula,
                                    tuple_of(step.shape), tuple_of(step.strides), step.moved,
                                    step.note, to_python(std::move(step.value), kind)));
  }
  return nb::borrow<nb::dict>(types.attr("Trace")(trace.title, trace.mask_first, steps));
}

}  // namespace cephalo::python
