#include "cephalo/train/adamw.h"

#include <cmath>

#include "cephalo/core/fail.h"
#include "cephalo/linear/ops.h"
#include "cephalo/train/step_checks.h"

namespace cephalo {
namespace {

constexpr const char* kName = "adamw_step";

void check_options(const AdamWOptions& o) {
  require(o.learning_rate >= 0.0, "{}: learning_rate ({}) must be >= 0", kName, o.learning_rate);
  require(o.beta1 >= 0.0 && o.beta1 < 1.0, "{}: beta1 ({}) must be in [0, 1)", kName, o.beta1);
  require(o.beta2 >= 0.0 && o.beta2 < 1.0, "{}: beta2 ({}) must be in [0, 1)", kName, o.beta2);
  require(o.eps >= 0.0, "{}: eps ({}) must be >= 0", kName, o.eps);
  require(o.weight_decay >= 0.0, "{}: weight_decay ({}) must be >= 0", kName, o.weight_decay);
}

}  // namespace

void adamw_step(const MutableTensorView& parameter, const TensorView& gradient, AdamWState& state,
                const AdamWOptions& options) {
  check_step(kName, parameter, gradient);
  check_options(options);
  if (state.step == 0) {
    for (Tensor* mean : {&state.mean, &state.mean_square}) {
      *mean = Tensor::empty(parameter.shape(), parameter.dtype(), parameter.device());
      ops::zero(*mean);
    }
  }
  check_state(kName, parameter, state.mean);
  check_state(kName, parameter, state.mean_square);
  ++state.step;
  // Early means are small because they begin at 0: both are divided by 1 − betaⁿ.
  const auto n = static_cast<double>(state.step);
  ops::adamw({.parameter = parameter,
              .gradient = gradient,
              .mean = state.mean,
              .mean_square = state.mean_square,
              .kept = 1.0 - options.learning_rate * options.weight_decay,
              .mean_kept = options.beta1,
              .mean_share = 1.0 - options.beta1,
              .square_kept = options.beta2,
              .square_share = 1.0 - options.beta2,
              .root_correction = std::sqrt(1.0 - std::pow(options.beta2, n)),
              .epsilon = options.eps,
              .step_size = options.learning_rate / (1.0 - std::pow(options.beta1, n))});
}

}  // namespace cephalo
