#pragma once

#include "bindings/arrays.h"
#include "cephalo/attention/trace.h"

namespace cephalo::python {

// cephalo.Trace, a dict: key -> array in the order of the steps, x, q, k, v, q_split ... output.
nb::dict trace_dict(Trace&& trace, Kind kind);

}  // namespace cephalo::python
