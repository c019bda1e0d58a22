#pragma once

#include <nanobind/nanobind.h>

#include "bindings/attention/multi_head.h"

namespace cephalo::python {

// forward_train, backward and new_gradients.
void bind_training(nb::class_<Layer>& layer);

}  // namespace cephalo::python
