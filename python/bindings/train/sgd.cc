#include "cephalo/train/sgd.h"

#include "bindings/arrays/arrays.h"
#include "bindings/arrays/gil.h"
#include "bindings/arrays/turn.h"
#include "bindings/bindings.h"
#include "bindings/train/optimiser.h"

namespace cephalo::python {
namespace {

struct Sgd {
  SgdState stored;
  Turn turn{"SgdState"};
};

// Without momentum there is nothing to remember.
void step(const AnyArray& parameter, const AnyArray& gradient, Sgd* state, double learning_rate,
          double momentum, double weight_decay, bool nesterov) {
  const ArrayOut p(parameter, "sgd_step", "parameter");
  const ArrayIn g(gradient, "sgd_step", "gradient");
  if (state == nullptr && momentum != 0.0) {
    throw nb::value_error("sgd_step: momentum needs a state: pass the parameter's SgdState");
  }
  const WithoutGil released;
  Sgd own;
  Sgd& used = state == nullptr ? own : *state;
  const std::unique_lock turn(used.turn);
  sgd_step(p.view(), g, used.stored, {learning_rate, momentum, weight_decay, nesterov});
}

}  // namespace

void bind_sgd(nb::module_& m) {
  nb::class_<Sgd>(m, "SgdState", "What SGD with momentum remembers about one parameter.")
      .def(nb::init<>())
      .def_prop_ro("direction",
                   moment<Sgd>([](const Sgd& s) -> TensorView { return s.stored.direction; }),
                   "of the last step; None before the first");
  const SgdOptions defaults;
  m.def("sgd_step", &step, "parameter"_a, "gradient"_a, "state"_a = nb::none(), nb::kw_only(),
        "learning_rate"_a = defaults.learning_rate, "momentum"_a = defaults.momentum,
        "weight_decay"_a = defaults.weight_decay, "nesterov"_a = defaults.nesterov,
        "One step of torch.optim.SGD; the parameter is changed in place.\n"
        "parameter, gradient: the same shape, both float32 or both float64. state: an SgdState, "
        "for momentum");
}

}  // namespace cephalo::python
