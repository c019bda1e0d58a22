// The layer's forward pass that remembers, and its backward pass: checks here, steps elsewhere.
#include <atomic>
#include <memory>
#include <utility>

#include "cephalo/attention/layer/layer_backward.h"
#include "cephalo/attention/layer/layer_pass.h"
#include "cephalo/attention/layer/multi_head.h"
#include "cephalo/core/fail.h"
#include "cephalo/core/parallel.h"
#include "cephalo/core/random.h"
#include "cephalo/core/views.h"

namespace cephalo {
namespace {

DType steps_of(const Parameters& parameters) {
  return compute_type(parameters.dtype());
}

// A view that nobody asked for: MutableTensorView().
bool wanted(const TensorView& t) {
  return t.shape() != Shape{0};
}

// t: [..., width] -> [rows, width]
Shape rows_shape(const TensorView& t) {
  dim_t rows = 1;
  for (int axis = 0; axis + 1 < t.rank(); ++axis) rows *= t.dim(axis);
  return {rows, t.dim(-1)};
}

// t as dense rows: the caller's memory, where that is dense and may be borrowed, or a copy.
TensorView keep_rows(const TensorView& t, KeepInput keep, Tensor* copy) {
  if (keep == KeepInput::borrow && t.is_contiguous()) return {t.data(), t.dtype(), rows_shape(t)};
  *copy = Tensor::copy(t);
  return {copy->data(), t.dtype(), rows_shape(t)};
}

// The same mask with tensors of its own.
Mask with_own_tensors(Mask mask) {
  for (MaskTensor& part : mask.tensors) {
    if (part.owner != nullptr) continue;
    part.owner = std::make_shared<const Tensor>(Tensor::copy(part.view));
    part.view = *part.owner;
  }
  return mask;
}

// Dense rows to write a result of any strides through.
class Rows {
 public:
  explicit Rows(const MutableTensorView& to) : to_(to) {
    if (!wanted(to)) return;
    if (!to.is_contiguous()) dense_ = Tensor::empty(to.shape(), to.dtype());
    void* memory = to.is_contiguous() ? to.mutable_data() : dense_.mutable_view().mutable_data();
    rows_ = MutableTensorView(memory, to.dtype(), rows_shape(to));
  }
  const MutableTensorView& rows() const { return rows_; }
  void finish() const {
    if (wanted(to_) && !to_.is_contiguous()) to_.copy_from(dense_);
  }

 private:
  MutableTensorView to_;
  Tensor dense_;
  MutableTensorView rows_;
};

}  // namespace

std::uint64_t MultiHeadAttention::next_id() {
  static std::atomic<std::uint64_t> next{1};
  return next++;
}

void MultiHeadAttention::begin_pass(const TensorView& x, const CallOptions& call, KeepInput keep,
                                    LayerPass& pass) const {
  require(call.cache == nullptr,
          "{}: forward_train takes no cache: gradients reach the tokens of x alone", rung_.name);
  check_input(x, call.kv != nullptr ? *call.kv : x);
  pass.layer = id_;
  pass.version = version_;
  pass.x_shape = x.shape();
  pass.x = keep_rows(x, keep, &pass.kept[0]);
  pass.kv_shape = call.kv != nullptr ? call.kv->shape() : Shape{};
  if (call.kv != nullptr) pass.kv = keep_rows(*call.kv, keep, &pass.kept[1]);
  pass.mask = keep == KeepInput::copy ? with_own_tensors(mask_for(call)) : mask_for(call);
  pass.generator =
      call.generator != nullptr ? std::make_unique<const TorchGenerator>(*call.generator) : nullptr;
}

void MultiHeadAttention::forward_train_into(const TensorView& x, const MutableTensorView& y,
                                            SavedPass& saved, const CallOptions& call,
                                            KeepInput keep) const {
  // Taken out meanwhile: an error leaves an empty pass, not half of one.
  std::unique_ptr<LayerPass> pass = std::move(saved.pass_);
  if (pass == nullptr) pass = std::make_unique<LayerPass>();
  begin_pass(x, call, keep, *pass);
  write_into(x, y, call, pass.get());
  saved.pass_ = std::move(pass);
}

TrainResult MultiHeadAttention::forward_train(const TensorView& x, const CallOptions& call,
                                              KeepInput keep) const {
  auto pass = std::make_unique<LayerPass>();
  begin_pass(x, call, keep, *pass);
  Tensor y = forward(x, call, nullptr, pass.get());
  return {std::move(y), SavedPass(std::move(pass))};
}

Gradients MultiHeadAttention::new_gradients() const {
  return {parameters_.sizes(), parameters_.form(), steps_of(parameters_), rung_.name};
}

void MultiHeadAttention::check_backward(const SavedPass& saved, const TensorView& dy,
                                        const MutableTensorView& dx, const Gradients& gradients,
                                        const MutableTensorView& dkv) const {
  require(!saved.empty(), "{}: backward needs the pass that forward_train saved; this one is empty",
          rung_.name);
  const LayerPass& pass = *saved.pass_;
  require(pass.layer == id_, "{}: backward: this pass was saved by another layer", rung_.name);
  require(pass.version == version_,
          "{}: backward: the parameters changed after this pass (version {} then, {} now); run "
          "forward_train again",
          rung_.name, pass.version, version_);
  Shape y_shape = pass.x_shape;
  y_shape[-1] = parameters_.sizes().out_proj ? parameters_.sizes().d_out
                                             : parameters_.sizes().context_width();
  const bool has_kv = pass.kv_shape.rank() > 0;
  require(has_kv || !wanted(dkv), "{}: backward: dkv is wanted, but this pass had no kv",
          rung_.name);
  const bool wide = parameters_.dtype() == DType::f64;
  const auto check = [&](const char* name_of, const TensorView& t, const char* of,
                         const Shape& shape) {
    require(t.shape() == shape, "{}: backward: {} is {}, {} is {}", rung_.name, name_of, t.shape(),
            of, shape);
    require_type(is_floating(t.dtype()) && (t.dtype() == DType::f64) == wide,
                 "{}: backward: {} is {}, the parameters are {}", rung_.name, name_of,
                 name(t.dtype()), name(parameters_.dtype()));
  };
  check("dy", dy, "y", y_shape);
  if (wanted(dx)) check("dx", dx, "x", pass.x_shape);
  if (wanted(dkv)) check("dkv", dkv, "kv", pass.kv_shape);
  require(gradients.sizes() == parameters_.sizes() && gradients.dtype() == steps_of(parameters_),
          "{}: backward: these gradients belong to a layer of other sizes; new_gradients() makes "
          "matching ones",
          rung_.name);
}

void MultiHeadAttention::backward(const SavedPass& saved, const TensorView& dy,
                                  const MutableTensorView& dx, Gradients& gradients,
                                  const MutableTensorView& dkv) const {
  check_backward(saved, dy, dx, gradients, dkv);
  const LayerPass& pass = *saved.pass_;
  if (pass.x.dim(0) == 0) {  // no query: nothing depends on the parameters or on kv
    if (wanted(dkv)) dkv.fill(0.0);
    return;
  }
  const UseThreads limit(pass.options.threads);
  const DType steps = steps_of(parameters_);
  const MaybeCopied dense = dy.dtype() == steps && dy.is_contiguous()
                                ? MaybeCopied(dy)
                                : MaybeCopied(Tensor::copy(dy, steps));
  const TensorView& rows = dense;
  const Rows x_rows(dx);
  const Rows kv_rows(dkv);
  run_layer_backward(
      parameters_, packed_.get(), pass, options_.rotary,
      {{rows.data(), steps, rows_shape(rows)}, x_rows.rows(), kv_rows.rows(), gradients.blocks()});
  x_rows.finish();
  kv_rows.finish();
}

}  // namespace cephalo
