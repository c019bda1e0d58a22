#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cephalo/attention/attend.h"
#include "cephalo/attention/layer/multi_head.h"

#pragma GCC visibility push(default)
namespace cephalo {

// Gradients against central differences, (loss(x + eps) − loss(x − eps)) / 2 eps, in float64. They
// agree where |analytic − numeric| <= atol + rtol · |numeric|.
struct GradcheckOptions {
  double eps = 1e-6;
  double atol = 1e-5;
  double rtol = 1e-3;
  // 0: every element separately. Otherwise this many random directions u for each tensor: the
  // change of the loss along u against the sum of gradient · u, two evaluations for all elements at
  // once.
  int projections = 0;
  std::uint64_t seed = 0;  // of the directions, and of the weights in the loss
  // Called before every difference: how many of this tensor are done, of all.
  std::function<void(const std::string& name, dim_t done, dim_t all)> progress = {};
};

// What was found for one tensor. `worst` is where the error is largest relative to what is allowed.
struct GradcheckTensor {
  std::string name;
  dim_t checked = 0;  // elements or projections
  dim_t failed = 0;
  struct Worst {
    Dims index;  // of the element; [number] of the projection
    double analytic = 0.0;
    double numeric = 0.0;
    double error = 0.0;    // |analytic − numeric|
    double allowed = 0.0;  // atol + rtol · |numeric|
  };
  Worst worst;  // all 0 when there was nothing to check
  bool passed() const { return failed == 0; }
};

// What was found for every tensor.
struct GradcheckReport {
  std::vector<GradcheckTensor> tensors;
  bool passed() const;
  std::string to_string() const;  // a table, one line a tensor
};

// One tensor. parameter: float64, any strides; it is moved for each evaluation of the loss, and
// afterwards every bit is as it was. analytic: the gradient to check, of the same shape.
GradcheckTensor check_gradient(const std::string& name, const std::function<double()>& loss,
                               const MutableTensorView& parameter, const TensorView& analytic,
                               const GradcheckOptions& options = {});

// attend and attend_backward with these arguments, by the engine that options ask for: q, k, v and
// every bias of the mask, copied to float64. The loss is a random weighting of context and lse. A
// generator of the torch streams is copied for each evaluation and does not advance.
GradcheckReport gradcheck(const TensorView& q, const TensorView& k, const TensorView& v,
                          const Mask& mask = {}, const AttendOptions& options = {},
                          const GradcheckOptions& check = {});

// forward_train and backward of a float64 copy of the layer, in its mode: x, kv after cross
// attention, and every parameter under its name. The loss is a random weighting of y. All
// evaluations have the dropout of one call: that of call.call, 0 if there is none.
GradcheckReport gradcheck(const MultiHeadAttention& layer, const TensorView& x,
                          const CallOptions& call = {}, const GradcheckOptions& check = {});

}  // namespace cephalo
#pragma GCC visibility pop
