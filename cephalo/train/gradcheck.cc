#include "cephalo/train/gradcheck.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cephalo/attention/attend_backward.h"
#include "cephalo/core/fail.h"
#include "cephalo/core/indices.h"
#include "cephalo/core/random.h"

namespace cephalo {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Puts a parameter back when it goes out of scope, also past a loss that throws.
class Restored {
 public:
  explicit Restored(const MutableTensorView& parameter)
      : parameter_(parameter), values_(Tensor::copy(parameter)) {}
  ~Restored() { parameter_.copy_from(values_); }
  Restored(const Restored&) = delete;
  Restored& operator=(const Restored&) = delete;

  const Tensor& values() const { return values_; }

 private:
  MutableTensorView parameter_;
  Tensor values_;
};

// Adds one comparison to what is known of a tensor.
void compare(GradcheckTensor& found, const Dims& index, double analytic, double numeric,
             const GradcheckOptions& options) {
  const double allowed = options.atol + options.rtol * std::abs(numeric);
  double error = std::abs(analytic - numeric);
  if (std::isnan(error)) error = kInfinity;
  // Written so that an `allowed` of NaN or infinity, from a loss that is no number, fails.
  const bool fails = !(error <= allowed && std::isfinite(allowed));
  found.failed += fails ? 1 : 0;
  const auto severity = [&](double e, double limit) {
    return std::isfinite(e) && std::isfinite(limit) ? e / std::max(limit, 1e-300) : kInfinity;
  };
  if (found.checked++ == 0 ||
      severity(error, allowed) > severity(found.worst.error, found.worst.allowed)) {
    found.worst = {index, analytic, numeric, error, allowed};
  }
}

// The loss at two points around the values, over their distance: move(±eps) goes there.
template <typename Move>
double central_difference(const std::function<double()>& loss, double eps, const Move& move) {
  move(eps);
  const double above = loss();
  move(-eps);
  return (above - loss()) / (2.0 * eps);
}

struct Check {
  const std::function<double()>& loss;
  const MutableTensorView& parameter;
  const Tensor& values;    // the parameter's, dense
  const Tensor& analytic;  // float64, dense
  const GradcheckOptions& options;

  void tell(const GradcheckTensor& found, dim_t all) const {
    if (options.progress) options.progress(found.name, found.checked, all);
  }

  void every_element(GradcheckTensor& found) const {
    const dim_t count = values.numel();
    Dims index = origin(values.shape());
    for (dim_t n = 0; n < count; ++n, advance(index, values.shape())) {
      tell(found, count);
      const double value = values.data_as<double>()[n];
      const double numeric = central_difference(
          loss, options.eps, [&](double step) { parameter.set(index, value + step); });
      parameter.set(index, value);
      compare(found, index, analytic.data_as<double>()[n], numeric, options);
    }
  }

  void random_directions(GradcheckTensor& found) const {
    TorchGenerator generator(options.seed);
    Tensor moved = Tensor::empty(values.shape(), DType::f64);
    const dim_t count = values.numel();
    if (count == 0) return;
    for (dim_t number = 0; number < options.projections; ++number) {
      tell(found, options.projections);
      const Tensor direction = generator.randn(values.shape(), DType::f64);
      const auto* u = direction.data_as<double>();
      const auto* x = values.data_as<double>();
      const double numeric = central_difference(loss, options.eps, [&](double step) {
        auto* to = moved.mutable_data_as<double>();
        for (dim_t n = 0; n < count; ++n) to[n] = x[n] + step * u[n];
        parameter.copy_from(moved);
      });
      double projected = 0.0;
      for (dim_t n = 0; n < count; ++n) projected += analytic.data_as<double>()[n] * u[n];
      compare(found, {number}, projected, numeric, options);
    }
  }
};

void check_options(const GradcheckOptions& options) {
  require(options.eps > 0.0 && std::isfinite(options.eps), "gradcheck: eps ({}) must be > 0",
          options.eps);
  require(options.atol >= 0.0 && options.rtol >= 0.0,
          "gradcheck: atol ({}) and rtol ({}) must be >= 0", options.atol, options.rtol);
  require(options.projections >= 0, "gradcheck: projections ({}) must be >= 0",
          options.projections);
}

// The inputs of one attend in float64, where the check can move them.
class AttendCase {
 public:
  AttendCase(const TensorView& q, const TensorView& k, const TensorView& v, const Mask& mask,
             const AttendOptions& options, std::uint64_t seed)
      : q_(Tensor::copy(q, DType::f64)),
        k_(Tensor::copy(k, DType::f64)),
        v_(Tensor::copy(v, DType::f64)),
        mask_(mask),
        options_(options) {
    options_.return_lse = true;
    options_.return_weights = false;
    options_.return_scores = ScoresTap::none;
    own_biases();
    with_fresh_generator([&] { result_ = attend(q_, k_, v_, mask_, options_); });
    TorchGenerator generator(seed);
    dcontext_ = generator.randn(result_.context.shape(), DType::f64);
    dlse_ = generator.randn(result_.lse.shape(), DType::f64);
  }

  GradcheckReport run(const GradcheckOptions& check) {
    AttendGradients gradients;
    with_fresh_generator([&] {
      gradients = attend_backward({result_.context, result_.lse, dcontext_, dlse_}, q_, k_, v_,
                                  mask_, options_, true);
    });
    const std::function<double()> loss = [this] { return this->loss(); };
    GradcheckReport report;
    const auto add = [&](const std::string& name, Tensor& parameter, const Tensor& gradient) {
      report.tensors.push_back(check_gradient(name, loss, parameter, gradient, check));
    };
    add("q", q_, gradients.dq);
    add("k", k_, gradients.dk);
    add("v", v_, gradients.dv);
    for (std::size_t n = 0; n < biases_.size(); ++n) {
      add(biases_.size() == 1 ? "bias" : format_text("bias[{}]", n), biases_[n],
          gradients.dbias[n]);
    }
    return report;
  }

 private:
  void own_biases() {
    for (MaskTensor& part : mask_.tensors) {
      if (part.role != MaskTensor::Role::bias) continue;
      biases_.push_back(Tensor::copy(part.view, DType::f64));
      part.view = biases_.back();  // memory stays where it is when the vector grows
      part.owner = nullptr;
    }
  }

  // Dropout must draw the same numbers at every evaluation.
  template <typename F>
  void with_fresh_generator(const F& f) {
    TorchGenerator* const given = options_.generator;
    if (given == nullptr) return f();
    TorchGenerator copy = *given;
    options_.generator = &copy;
    f();
    options_.generator = given;
  }

  // Σ dcontext · context + Σ dlse · lse, whose gradients by context and lse are the weights.
  double loss() {
    with_fresh_generator([&] {
      attend_into({result_.context, result_.lse}, q_, k_, v_, mask_, options_);
    });
    double sum = 0.0;
    const auto* context = result_.context.data_as<double>();
    for (dim_t n = 0; n < result_.context.numel(); ++n) {
      sum += dcontext_.data_as<double>()[n] * context[n];
    }
    const auto* lse = result_.lse.data_as<double>();
    for (dim_t n = 0; n < result_.lse.numel(); ++n) {
      if (lse[n] != -kInfinity)
        sum += dlse_.data_as<double>()[n] * lse[n];  // else a row of nothing
    }
    return sum;
  }

  Tensor q_, k_, v_;
  Mask mask_;  // borrows biases_
  std::vector<Tensor> biases_;
  AttendOptions options_;
  AttendResult result_;
  Tensor dcontext_, dlse_;
};

}  // namespace

bool GradcheckReport::passed() const {
  return std::all_of(tensors.begin(), tensors.end(), [](const auto& t) { return t.passed(); });
}

std::string GradcheckReport::to_string() const {
  std::size_t name_width = 6;
  std::size_t index_width = 5;
  for (const GradcheckTensor& t : tensors) {
    name_width = std::max(name_width, t.name.size());
    index_width = std::max(index_width, cephalo::to_string(t.worst.index).size());
  }
  std::string out =
      format_text("{:<{}}  {:>7}  {:<{}}  {:>12}  {:>12}  {:>7}  {:>7}\n", "tensor", name_width,
                  "checked", "worst", index_width, "analytic", "numeric", "error", "allowed");
  for (const GradcheckTensor& t : tensors) {
    const GradcheckTensor::Worst& w = t.worst;
    out += format_text("{:<{}}  {:>7}  {:<{}}  {:>12.6g}  {:>12.6g}  {:>7.1e}  {:>7.1e}{}\n",
                       t.name, name_width, t.checked, cephalo::to_string(w.index), index_width,
                       w.analytic, w.numeric, w.error, w.allowed,
                       t.passed() ? "" : format_text("  {} wrong", t.failed));
  }
  return out;
}

GradcheckTensor check_gradient(const std::string& name, const std::function<double()>& loss,
                               const MutableTensorView& parameter, const TensorView& analytic,
                               const GradcheckOptions& options) {
  check_options(options);
  require_type(parameter.dtype() == DType::f64, "gradcheck: {} is {}, float64 is needed", name,
               cephalo::name(parameter.dtype()));
  require(parameter.shape() == analytic.shape(), "gradcheck: {} is {}, its gradient {}", name,
          parameter.shape(), analytic.shape());
  GradcheckTensor found;
  found.name = name;
  const Restored restored(parameter);
  const Tensor gradient = Tensor::copy(analytic, DType::f64);
  const Check check{loss, parameter, restored.values(), gradient, options};
  if (options.projections > 0) {
    check.random_directions(found);
  } else {
    check.every_element(found);
  }
  return found;
}

GradcheckReport gradcheck(const TensorView& q, const TensorView& k, const TensorView& v,
                          const Mask& mask, const AttendOptions& options,
                          const GradcheckOptions& check) {
  check_options(check);
  return AttendCase(q, k, v, mask, options, check.seed).run(check);
}

}  // namespace cephalo
