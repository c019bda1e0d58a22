#include "cephalo/train/step_checks.h"

#include "cephalo/core/fail.h"

namespace cephalo {

void check_step(const char* function, const TensorView& parameter, const TensorView& gradient) {
  require_type(parameter.dtype() == DType::f32 || parameter.dtype() == DType::f64,
               "{}: the parameter is {}, float32 or float64 is needed", function,
               name(parameter.dtype()));
  require_type(gradient.dtype() == parameter.dtype(), "{}: the gradient is {}, the parameter {}",
               function, name(gradient.dtype()), name(parameter.dtype()));
  require(gradient.shape() == parameter.shape(), "{}: the gradient is {}, the parameter {}",
          function, gradient.shape(), parameter.shape());
}

void check_state(const char* function, const TensorView& parameter, const TensorView& state) {
  require(state.shape() == parameter.shape() && state.dtype() == parameter.dtype(),
          "{}: the state is that of a {} {}, the parameter is a {} {}", function,
          name(state.dtype()), state.shape(), name(parameter.dtype()), parameter.shape());
}

}  // namespace cephalo
