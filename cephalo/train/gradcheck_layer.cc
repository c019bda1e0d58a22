#include <optional>

#include "cephalo/core/random.h"
#include "cephalo/train/gradcheck.h"

namespace cephalo {
namespace {

// The same layer in float64, in the same mode.
MultiHeadAttention in_float64(const MultiHeadAttention& layer) {
  MultiHeadAttentionOptions options = layer.options();
  options.dtype = DType::f64;
  options.seed = layer.seed();
  MultiHeadAttention copy(options, [&](const std::string& name, const MutableTensorView& to) {
    to.copy_from(layer.parameter(name));
  });
  if (layer.training()) copy.train();
  return copy;
}

// A layer and its inputs in float64, where the check can move them.
class LayerCase {
 public:
  // x: [batch, tokens, d_in] or [tokens, d_in]
  LayerCase(const MultiHeadAttention& layer, const TensorView& x, const CallOptions& call)
      : layer_(in_float64(layer)),
        x_(Tensor::copy(x, DType::f64)),
        kv_(call.kv != nullptr ? Tensor::copy(*call.kv, DType::f64) : Tensor()),
        kv_view_(kv_),
        call_(call),
        generator_(call.generator) {
    if (call.kv != nullptr) call_.kv = &kv_view_;
    call_.call = call.call.value_or(0);
  }
  LayerCase(const LayerCase&) = delete;  // call_ points into it
  LayerCase& operator=(const LayerCase&) = delete;

  GradcheckReport run(const GradcheckOptions& check) {
    const TrainResult forward = layer_.forward_train(x_, same_call());
    y_ = Tensor::empty(forward.y.shape(), DType::f64);
    dy_ = TorchGenerator(check.seed).randn(y_.shape(), DType::f64);
    Tensor dx = Tensor::empty(x_.shape(), DType::f64);
    Tensor dkv = call_.kv != nullptr ? Tensor::empty(kv_.shape(), DType::f64) : Tensor();
    Gradients gradients = layer_.new_gradients();
    layer_.backward(forward.saved, dy_, dx, gradients, dkv);

    GradcheckReport report;
    const auto loss = [this] { return this->loss(); };
    report.tensors.push_back(check_gradient("x", loss, x_, dx, check));
    if (call_.kv != nullptr) {
      report.tensors.push_back(check_gradient("kv", loss, kv_, dkv, check));
    }
    for (const NamedParameter& gradient : gradients.named()) {
      report.tensors.push_back(check_parameter(gradient, check));
    }
    return report;
  }

 private:
  GradcheckTensor check_parameter(const NamedParameter& gradient, const GradcheckOptions& check) {
    const Tensor before = Tensor::copy(layer_.parameter(gradient.name));
    Tensor value = Tensor::copy(before);
    const auto loss = [&] {
      layer_.update(gradient.name, value);
      return this->loss();
    };
    GradcheckTensor found = check_gradient(gradient.name, loss, value, gradient.value, check);
    layer_.update(gradient.name, before);
    return found;
  }

  // Dropout must draw the same numbers at every evaluation.
  const CallOptions& same_call() {
    if (generator_ != nullptr) call_.generator = &drawn_from_.emplace(*generator_);
    return call_;
  }

  // Σ dy · y, whose gradient by y is dy.
  double loss() {
    layer_.forward_into(x_, y_, same_call());
    double sum = 0.0;
    for (dim_t n = 0; n < y_.numel(); ++n) {
      sum += dy_.data_as<double>()[n] * y_.data_as<double>()[n];
    }
    return sum;
  }

  MultiHeadAttention layer_;
  Tensor x_, kv_;
  TensorView kv_view_;
  CallOptions call_;
  const TorchGenerator* generator_;  // the caller's
  std::optional<TorchGenerator> drawn_from_;
  Tensor y_, dy_;
};

}  // namespace

GradcheckReport gradcheck(const MultiHeadAttention& layer, const TensorView& x,
                          const CallOptions& call, const GradcheckOptions& check) {
  return LayerCase(layer, x, call).run(check);
}

}  // namespace cephalo
