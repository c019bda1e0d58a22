#include "cephalo/train/adamw.h"

#include <cmath>

#include "cephalo/core/fail.h"
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

// The numbers of one step that all elements share. Early means are small because they begin at 0:
// both are divided by 1 − betaⁿ.
template <typename T>
struct Factors {
  T kept, mean_kept, mean_share, square_kept, square_share, root_correction, eps, step_size;

  Factors(const AdamWOptions& o, std::int64_t step)
      : kept(static_cast<T>(1.0 - o.learning_rate * o.weight_decay)),
        mean_kept(static_cast<T>(o.beta1)),
        mean_share(static_cast<T>(1.0 - o.beta1)),
        square_kept(static_cast<T>(o.beta2)),
        square_share(static_cast<T>(1.0 - o.beta2)),
        root_correction(
            static_cast<T>(std::sqrt(1.0 - std::pow(o.beta2, static_cast<double>(step))))),
        eps(static_cast<T>(o.eps)),
        step_size(static_cast<T>(o.learning_rate /
                                 (1.0 - std::pow(o.beta1, static_cast<double>(step))))) {}
};

template <typename T>
void step_elements(const MutableTensorView& parameter, const TensorView& gradient,
                   AdamWState& state, const Factors<T>& f) {
  T* parameters = parameter.mutable_data_as<T>();
  const T* gradients = gradient.data_as<T>();
  T* means = state.mean.mutable_data_as<T>();
  T* squares = state.mean_square.mutable_data_as<T>();
  constexpr double kFlops = 30.0;  // a root and two divisions among them
  for_runs<2>({parameter, gradient}, kFlops, [&](dim_t, const Run<2>& run) {
    for (dim_t k = 0; k < run.count; ++k) {
      const T g = gradients[run.offset[1] + k * run.stride[1]];
      T& p = parameters[run.offset[0] + k * run.stride[0]];
      T& mean = means[run.first + k];
      T& square = squares[run.first + k];
      mean = f.mean_kept * mean + f.mean_share * g;
      square = f.square_kept * square + f.square_share * g * g;
      p = f.kept * p - f.step_size * mean / (std::sqrt(square) / f.root_correction + f.eps);
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
    step_elements(parameter, gradient, state, Factors<double>(options, state.step));
  } else {
    step_elements(parameter, gradient, state, Factors<float>(options, state.step));
  }
}

}  // namespace cephalo
