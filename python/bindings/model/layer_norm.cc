#include "cephalo/model/layer_norm.h"

#include <nanobind/stl/string.h>

#include <new>
#include <utility>

#include "bindings/arrays/arrays.h"
#include "bindings/arrays/members.h"
#include "bindings/arrays/spellings.h"
#include "bindings/bindings.h"
#include "cephalo/core/format.h"

namespace cephalo::python {
namespace {

constexpr const char* kName = "LayerNorm";

void construct(LayerNorm* self, dim_t width, double epsilon, const nb::object& dtype) {
  require(width > 0, "{}: width ({}) must be > 0", kName, width);
  new (self) LayerNorm(width, epsilon, steps_dtype(dtype, kName));
}

}  // namespace

void bind_layer_norm(nb::module_& m) {
  nb::class_<LayerNorm>(m, kName,
                        "Every row to mean 0 and variance 1, then times weight, plus bias.")
      .def("__init__", &construct, "width"_a, "epsilon"_a = 1e-5, "dtype"_a = "float32",
           "weight starts at 1 and bias at 0; write to the arrays to set them. dtype: float32 or "
           "float64")
      .def("__call__", call_of<LayerNorm>(kName), "x"_a,
           "x: [..., width], of the parameters' type -> the same shape, of x's kind")
      .def_prop_ro("weight", member(&LayerNorm::weight), "[width]")
      .def_prop_ro("bias", member(&LayerNorm::bias), "[width]")
      .def_ro("epsilon", &LayerNorm::epsilon)
      .def("__repr__", [](const LayerNorm& l) {
        return format_text("{}(width={}, epsilon={})", kName, l.width(), l.epsilon);
      });
}

}  // namespace cephalo::python
