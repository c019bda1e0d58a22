#pragma once

#include <nanobind/nanobind.h>

namespace cephalo::python {

namespace nb = nanobind;
using namespace nb::literals;  // NOLINT: "q"_a names an argument

// One file each, named after the header that it binds.
void bind_array(nb::module_& m);
void bind_errors();
void bind_parallel(nb::module_& m);
void bind_random(nb::module_& m);
void bind_mask(nb::module_& m);
void bind_kv_cache(nb::module_& m);
void bind_attend(nb::module_& m);
void bind_attend_backward(nb::module_& m);
void bind_plan(nb::module_& m);
void bind_weights(nb::module_& m);
void bind_multi_head(nb::module_& m);
void bind_ladder(nb::module_& m);
void bind_gradients(nb::module_& m);
void bind_layer_file(nb::module_& m);
void bind_gradcheck(nb::module_& m);
void bind_exercise(nb::module_& m);

}  // namespace cephalo::python
