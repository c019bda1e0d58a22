#include "cephalo/train/sgd.h"

#include "cephalo/core/fail.h"
#include "cephalo/linear/ops.h"
#include "cephalo/train/step_checks.h"

namespace cephalo {
namespace {

constexpr const char* kName = "sgd_step";

void check_options(const SgdOptions& o) {
  require(o.learning_rate >= 0.0, "{}: learning_rate ({}) must be >= 0", kName, o.learning_rate);
  require(o.momentum >= 0.0, "{}: momentum ({}) must be >= 0", kName, o.momentum);
  require(o.weight_decay >= 0.0, "{}: weight_decay ({}) must be >= 0", kName, o.weight_decay);
  require(!o.nesterov || o.momentum > 0.0, "{}: nesterov needs a momentum > 0", kName);
}

}  // namespace

void sgd_step(const MutableTensorView& parameter, const TensorView& gradient, SgdState& state,
              const SgdOptions& options) {
  check_step(kName, parameter, gradient);
  check_options(options);
  const bool first = options.momentum > 0.0 && state.direction.numel() == 0;
  if (first) {
    state.direction = Tensor::empty(parameter.shape(), parameter.dtype(), parameter.device());
  }
  if (options.momentum > 0.0) check_state(kName, parameter, state.direction);
  ops::sgd(
      {.parameter = parameter,
       .gradient = gradient,
       .direction = options.momentum > 0.0 ? state.direction.mutable_view() : MutableTensorView(),
       .first = first,
       .learning_rate = options.learning_rate,
       .momentum = options.momentum,
       .weight_decay = options.weight_decay,
       .nesterov = options.nesterov});
}

}  // namespace cephalo
