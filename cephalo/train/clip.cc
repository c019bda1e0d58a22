#include "cephalo/train/clip.h"

#include <cmath>

#include "cephalo/core/fail.h"
#include "cephalo/linear/ops.h"
#include "cephalo/train/clip_factor.h"

namespace cephalo {
namespace {

constexpr const char* kName = "clip_gradient_norm";

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
    Tensor squares = Tensor::empty({}, DType::f64, gradient.device());
    ops::sum_of_squares(gradient, squares);
    total += squares.at({});
  }
  const double norm = std::sqrt(total);
  const double factor = clip_factor(norm, max_norm);
  if (factor == 1.0) return norm;
  for (const MutableTensorView& gradient : gradients) ops::scale(gradient, factor);
  return norm;
}

}  // namespace cephalo
