#include "cephalo/train/adamw.h"

#include <algorithm>
#include <cmath>

#include "cephalo/core/cpu.h"
#include "cephalo/core/fail.h"
#include "cephalo/kernels/tables.h"
#include "cephalo/train/elementwise.h"

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

// Early means are small because they begin at 0: both are divided by 1 − betaⁿ.
template <typename T>
kernels::AdamWFactors<T> factors_of(const AdamWOptions& o, std::int64_t step) {
  const auto n = static_cast<double>(step);
  return {static_cast<T>(1.0 - o.learning_rate * o.weight_decay),
          static_cast<T>(o.beta1),
          static_cast<T>(1.0 - o.beta1),
          static_cast<T>(o.beta2),
          static_cast<T>(1.0 - o.beta2),
          static_cast<T>(std::sqrt(1.0 - std::pow(o.beta2, n))),
          static_cast<T>(o.eps),
          static_cast<T>(o.learning_rate / (1.0 - std::pow(o.beta1, n)))};
}

// Elements that do not lie side by side take turns in a buffer.
constexpr dim_t kBuffer = 512;

template <typename T>
void step_elements(const MutableTensorView& parameter, const TensorView& gradient,
                   AdamWState& state, const kernels::AdamWFactors<T>& f) {
  const auto& kernels = kernels::train_kernels<T>(current_isa());
  T* parameters = parameter.mutable_data_as<T>();
  const T* gradients = gradient.data_as<T>();
  T* means = state.mean.mutable_data_as<T>();
  T* squares = state.mean_square.mutable_data_as<T>();
  constexpr double kFlops = 4.0;  // in plain code's time
  for_runs<2>({parameter, gradient}, kFlops, [&](dim_t, const Run<2>& run) {
    T* p = parameters + run.offset[0];
    const T* g = gradients + run.offset[1];
    if (run.stride[0] == 1 && run.stride[1] == 1) {
      kernels.adamw(f, g, run.count, p, means + run.first, squares + run.first);
      return;
    }
    T buffer[2][kBuffer];
    for (dim_t begin = 0; begin < run.count; begin += kBuffer) {
      const dim_t count = std::min(kBuffer, run.count - begin);
      for (dim_t k = 0; k < count; ++k) {
        buffer[0][k] = p[(begin + k) * run.stride[0]];
        buffer[1][k] = g[(begin + k) * run.stride[1]];
      }
      kernels.adamw(f, buffer[1], count, buffer[0], means + run.first + begin,
                    squares + run.first + begin);
      for (dim_t k = 0; k < count; ++k) p[(begin + k) * run.stride[0]] = buffer[0][k];
    }
  });
}

}  // namespace

void adamw_step(const MutableTensorView& parameter, const TensorView& gradient, AdamWState& state,
                const AdamWOptions& options) {
  check_step(kName, parameter, gradient);
  check_options(options);
  if (state.step == 0) {
    state.mean = Tensor::zeros(parameter.shape(), parameter.dtype());
    state.mean_square = Tensor::zeros(parameter.shape(), parameter.dtype());
  }
  check_state(kName, parameter, state.mean);
  check_state(kName, parameter, state.mean_square);
  ++state.step;
  if (parameter.dtype() == DType::f64) {
    step_elements(parameter, gradient, state, factors_of<double>(options, state.step));
  } else {
    step_elements(parameter, gradient, state, factors_of<float>(options, state.step));
  }
}

}  // namespace cephalo
