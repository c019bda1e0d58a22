#pragma once

#include "bindings/arrays/arrays.h"

namespace cephalo::python {

// A tensor of an optimiser's state as a read-only array; None before the first step.
template <typename State, typename Get>
auto moment(Get get) {
  return [get](nb::handle self) -> nb::object {
    const TensorView view = get(nb::cast<const State&>(self));
    if (view.numel() == 0) return nb::none();
    return borrowed_to_python(view, self);
  };
}

}  // namespace cephalo::python
