#include "cephalo/train/adamw.h"

#include <nanobind/stl/string.h>

#include "bindings/arrays/arrays.h"
#include "bindings/arrays/gil.h"
#include "bindings/arrays/turn.h"
#include "bindings/bindings.h"
#include "bindings/train/optimiser.h"
#include "cephalo/core/format.h"

namespace cephalo::python {
namespace {

struct AdamW {
  AdamWState stored;
  Turn turn{"AdamWState"};
};

void step(const AnyArray& parameter, const AnyArray& gradient, AdamW& state, double learning_rate,
          double beta1, double beta2, double eps, double weight_decay) {
  const ArrayOut p(parameter, "adamw_step", "parameter");
  const ArrayIn g(gradient, "adamw_step", "gradient");
  const WithoutGil released;
  const std::unique_lock turn(state.turn);
  adamw_step(p.view(), g, state.stored, {learning_rate, beta1, beta2, eps, weight_decay});
}

}  // namespace

void bind_adamw(nb::module_& m) {
  nb::class_<AdamW>(m, "AdamWState", "What AdamW remembers about one parameter.")
      .def(nb::init<>())
      .def_prop_ro("mean",
                   moment<AdamW>([](const AdamW& s) -> TensorView { return s.stored.mean; }),
                   "of the gradient; None before the first step")
      .def_prop_ro("mean_square",
                   moment<AdamW>([](const AdamW& s) -> TensorView { return s.stored.mean_square; }),
                   "of the gradient's square")
      .def_prop_ro("step", [](const AdamW& s) { return s.stored.step; })
      .def("__repr__",
           [](const AdamW& s) { return format_text("AdamWState(step={})", s.stored.step); });
  const AdamWOptions defaults;
  m.def("adamw_step", &step, "parameter"_a, "gradient"_a, "state"_a, nb::kw_only(),
        "learning_rate"_a = defaults.learning_rate, "beta1"_a = defaults.beta1,
        "beta2"_a = defaults.beta2, "eps"_a = defaults.eps,
        "weight_decay"_a = defaults.weight_decay,
        "One step of torch.optim.AdamW; the parameter is changed in place.\n"
        "parameter, gradient: the same shape, both float32 or both float64. state: its AdamWState");
}

}  // namespace cephalo::python
