#include "cephalo/model/mlp.h"

#include <nanobind/stl/string.h>

#include <new>
#include <string>

#include "bindings/arrays/arrays.h"
#include "bindings/arrays/members.h"
#include "bindings/arrays/spellings.h"
#include "bindings/bindings.h"
#include "cephalo/core/format.h"

namespace cephalo::python {
namespace {

constexpr const char* kName = "Mlp";

void construct(Mlp* self, dim_t d_model, dim_t d_mlp, const std::string& activation,
               const nb::object& dtype) {
  require(d_model > 0 && d_mlp >= 0, "{}: d_model ({}) must be > 0 and d_mlp ({}) >= 0", kName,
          d_model, d_mlp);
  new (self) Mlp(d_model, d_mlp == 0 ? checked_mul(4, d_model) : d_mlp,
                 activation_of(activation, kName), steps_dtype(dtype, kName));
}

}  // namespace

void bind_mlp(nb::module_& m) {
  nb::class_<Mlp>(m, kName,
                  "y = activation(x fc_weight^T + fc_bias) proj_weight^T + proj_bias, for every "
                  "token separately.")
      .def("__init__", &construct, "d_model"_a, "d_mlp"_a = 0, "activation"_a = "gelu_tanh",
           "dtype"_a = "float32",
           "All parameters start at 0; write to the arrays to set them. d_mlp: 0 for 4 * d_model.\n"
           "activation: \"gelu_tanh\" (GPT-2's) or \"gelu_erf\". dtype: float32 or float64")
      .def("__call__", call_of<Mlp>(kName), "x"_a,
           "x: [..., d_model], of the parameters' type -> the same shape, of x's kind")
      .def_prop_ro("fc_weight", member(&Mlp::fc_weight), "[d_mlp, d_model]")
      .def_prop_ro("fc_bias", member(&Mlp::fc_bias), "[d_mlp]")
      .def_prop_ro("proj_weight", member(&Mlp::proj_weight), "[d_model, d_mlp]")
      .def_prop_ro("proj_bias", member(&Mlp::proj_bias), "[d_model]")
      .def("__repr__", [](const Mlp& mlp) {
        return format_text("{}(d_model={}, d_mlp={}, activation='{}')", kName, mlp.fc_weight.dim(1),
                           mlp.fc_weight.dim(0), name(mlp.activation));
      });
}

}  // namespace cephalo::python
