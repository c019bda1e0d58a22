#include "cephalo/train/clip.h"

#include <cmath>
#include <vector>

#include "cephalo/core/cpu.h"
#include "cephalo/core/fail.h"
#include "cephalo/core/views.h"
#include "cephalo/kernels/tables.h"
#include "cephalo/train/elementwise.h"

namespace cephalo {
namespace {

constexpr const char* kName = "clip_gradient_norm";

template <typename T>
double sum_of_squares(const TensorView& gradient) {
  const MaybeCopied dense = contiguous(gradient);  // the same sums for any strides
  const auto& kernels = kernels::train_kernels<T>(current_isa());
  const T* values = dense.view().data_as<T>();
  std::vector<double> sums(static_cast<std::size_t>(pieces_of(gradient)), 0.0);
  for_runs<1>({dense.view()}, 0.5, [&](dim_t piece, const Run<1>& run) {
    sums[static_cast<std::size_t>(piece)] = kernels.sum_of_squares(values + run.first, run.count);
  });
  double total = 0.0;
  for (const double sum : sums) total += sum;
  return total;
}

template <typename T>
void multiply(const MutableTensorView& gradient, double factor) {
  T* values = gradient.mutable_data_as<T>();
  for_runs<1>({gradient}, 1.0, [&](dim_t, const Run<1>& run) {
    for (dim_t k = 0; k < run.count; ++k) {
      values[run.offset[0] + k * run.stride[0]] *= static_cast<T>(factor);
    }
  });
}

}  // namespace

double clip_gradient_norm(std::span<const MutableTensorView> gradients, double max_norm) {
  require(max_norm >= 0.0, "{}: max_norm ({}) must be >= 0", kName, max_norm);
  for (const MutableTensorView& gradient : gradients) {
    require_type(gradient.dtype() == DType::f32 || gradient.dtype() == DType::f64,
                 "{}: a gradient is {}, float32 or float64 is needed", kName,
                 name(gradient.dtype()));
  }
  double total = 0.0;
  for (const MutableTensorView& gradient : gradients) {
    total += gradient.dtype() == DType::f64 ? sum_of_squares<double>(gradient)
                                            : sum_of_squares<float>(gradient);
  }
  const double norm = std::sqrt(total);
  const double factor = max_norm / (norm + 1e-6);
  if (!std::isfinite(norm) || factor >= 1.0) return norm;
  for (const MutableTensorView& gradient : gradients) {
    if (gradient.dtype() == DType::f64) {
      multiply<double>(gradient, factor);
    } else {
      multiply<float>(gradient, factor);
    }
  }
  return norm;
}

}  // namespace cephalo
