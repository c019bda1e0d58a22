#pragma once

#include "bindings/arrays/arrays.h"
#include "cephalo/attention/reference/trace.h"

namespace cephalo::python {

// cephalo.Trace, a dict: key -> array in the order of the steps, x, q, k, v, q_split ... output.
nb::dict trace_dict(Trace&& trace, Kind kind);

// What cephalo.SplitPicture draws itself with.
void bind_trace(nb::module_& m);

}  // namespace cephalo::python
