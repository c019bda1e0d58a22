#include "cephalo/train/sgd.h"

#include "cephalo/core/fail.h"
#include "cephalo/train/elementwise.h"

namespace cephalo {
namespace {

constexpr const char* kName = "sgd_step";
constexpr double kFlops = 10.0;

void check_options(const SgdOptions& o) {
  require(o.learning_rate >= 0.0, "{}: learning_rate ({}) must be >= 0", kName, o.learning_rate);
  require(o.momentum >= 0.0, "{}: momentum ({}) must be >= 0", kName, o.momentum);
  require(o.weight_decay >= 0.0, "{}: weight_decay ({}) must be >= 0", kName, o.weight_decay);
  require(!o.nesterov || o.momentum > 0.0, "{}: nesterov needs a momentum > 0", kName);
}

template <typename T>
void step_elements(const MutableTensorView& parameter, const TensorView& gradient, SgdState& state,
                   bool first, const SgdOptions& options) {
  T* parameters = parameter.mutable_data_as<T>();
  const T* gradients = gradient.data_as<T>();
  T* directions = options.momentum > 0.0 ? state.direction.mutable_data_as<T>() : nullptr;
  const auto learning_rate = static_cast<T>(options.learning_rate);
  const auto momentum = static_cast<T>(options.momentum);
  const auto weight_decay = static_cast<T>(options.weight_decay);
  for_runs<2>({parameter, gradient}, kFlops, [&](dim_t, const Run<2>& run) {
    for (dim_t k = 0; k < run.count; ++k) {
      T& p = parameters[run.offset[0] + k * run.stride[0]];
      T step = gradients[run.offset[1] + k * run.stride[1]] + weight_decay * p;
      if (directions != nullptr) {
        T& direction = directions[run.first + k];
        direction = first ? step : momentum * direction + step;
        step = options.nesterov ? step + momentum * direction : direction;
      }
      p -= learning_rate * step;
    }
  });
}

}  // namespace

void sgd_step(const MutableTensorView& parameter, const TensorView& gradient, SgdState& state,
              const SgdOptions& options) {
  check_step(kName, parameter, gradient);
  check_options(options);
  const bool first = options.momentum > 0.0 && state.direction.numel() == 0;
  if (first) state.direction = Tensor::empty(parameter.shape(), parameter.dtype());
  if (options.momentum > 0.0) check_state(kName, parameter, state.direction);
  if (parameter.dtype() == DType::f64) {
    step_elements<double>(parameter, gradient, state, first, options);
  } else {
    step_elements<float>(parameter, gradient, state, first, options);
  }
}

}  // namespace cephalo
