// The passes of a GPT that end in a loss: there, and there and back.
#include <algorithm>
#include <optional>
#include <utility>

#include "cephalo/core/fail.h"
#include "cephalo/core/parallel.h"
#include "cephalo/core/views.h"
#include "cephalo/linear/ops.h"
#include "cephalo/model/gpt.h"
#include "cephalo/model/gpt_layers.h"
#include "cephalo/model/gpt_pass.h"
#include "cephalo/world/world.h"

namespace cephalo {
namespace {

// Calls step(first_row, logits) for the rows' logits, block after block; logits use one memory.
template <typename Step>
double for_logits(const PackedLinear& head, const TensorView& normed,
                  const MutableTensorView& memory, const Step& step) {
  double sum = 0.0;
  for (dim_t first = 0; first < normed.dim(0); first += kLogitRows) {
    const dim_t end = std::min(normed.dim(0), first + kLogitRows);
    const MutableTensorView logits = memory.slice(0, 0, end - first);
    ops::linear(head, normed.slice(0, first, end), logits);
    sum += step(first, logits);
  }
  return sum;
}

// What was laid out before, or laid out now.
class LaidOut {
 public:
  LaidOut(const std::optional<PackedLinear>& before, const TensorView& weight, DType steps)
      : before_(before) {
    if (!before_) own_.emplace(weight, TensorView(), steps);
  }
  operator const PackedLinear&() const { return before_ ? *before_ : *own_; }

 private:
  const std::optional<PackedLinear>& before_;
  std::optional<PackedLinear> own_;
};

void check_tokens(const GptOptions& o, const TensorView& ids, const Spread& spread) {
  GptPass::check_length(o, 0, spread.world != nullptr ? spread.tokens : ids.dim(1));
}

// This process's share of a loss -> the sum over processes, rank after rank.
double summed(double share, const Spread& spread) {
  if (spread.world == nullptr) return share;
  Tensor sum = Tensor::full({1}, share, DType::f64);
  spread.world->sum(sum);
  return *sum.data_as<double>();
}

}  // namespace

// Gradients of a pass whose tokens are spread: shares of this process, which become sums over all
// as soon as they are whole. Apart from the caller's, which hold sums of earlier passes already.
class Gpt::SpreadGradients {
 public:
  SpreadGradients(const Gpt& model, GptGradients& to, const PassOptions& options)
      : to_(to), options_(options) {
    if (options.spread.world != nullptr) own_.emplace(model);
  }

  GptGradientTensors& shares() { return own_ ? *own_->stored_ : *to_.stored_; }

  GradientsDone on_gradients() {
    if (!own_) return options_.on_gradients;
    return [this](std::size_t first, std::size_t end) { add_up(first, end); };
  }

 private:
  void add_up(std::size_t first, std::size_t end) {
    for (std::size_t n = first; n < end; ++n) {
      options_.spread.world->sum(own_->tensors()[n]);
      ops::add(own_->tensors()[n], to_.tensors()[n]);
    }
    if (options_.on_gradients) options_.on_gradients(first, end);
  }

  GptGradients& to_;
  const PassOptions& options_;
  std::optional<GptGradients> own_;
};

double Gpt::loss_pass(const TensorView& ids, const LogitsLoss& loss,
                      const PassOptions& options) const {
  const GptLayers& model = *layers_;
  const GptOptions& o = model.options;
  require(ids.rank() == 2, "Gpt::loss_pass: ids {} must be [batch, tokens]", ids.shape());
  const Tensor checked = checked_ids("Gpt::loss_pass", ids, o.vocab_size);
  check_tokens(o, ids, options.spread);
  if (ids.numel() == 0) return 0.0;
  const UseThreads limit(options.threads);
  PassMemory own;
  GptPass pass(model, checked, {.spread = options.spread, .mask = &options.mask},
               options.workspace != nullptr ? *options.workspace->memory_ : own);
  const MutableTensorView normed = pass.forward();
  const MutableTensorView memory = pass.take({std::min(normed.dim(0), kLogitRows), o.vocab_size});
  const LaidOut head(model.packed_head, model.head_weight(), o.dtype);
  return summed(for_logits(head, normed, memory, loss), options.spread);
}

double Gpt::train_pass(const TensorView& ids, const LogitsLoss& loss, GptGradients& gradients,
                       const PassOptions& options) const {
  const GptLayers& model = *layers_;
  const GptOptions& o = model.options;
  require(ids.rank() == 2, "Gpt::train_pass: ids {} must be [batch, tokens]", ids.shape());
  const Tensor checked = checked_ids("Gpt::train_pass", ids, o.vocab_size);
  check_tokens(o, ids, options.spread);
  require(gradients.stored_->fits(model),
          "Gpt::train_pass: these gradients belong to a model of other sizes; GptGradients(model) "
          "makes matching ones");
  if (ids.numel() == 0) return 0.0;
  const UseThreads limit(options.threads);
  SpreadGradients spread(*this, gradients, options);
  GptGradientTensors& to = spread.shares();
  PassMemory own;
  GptPass pass(model, checked,
               {.keeps = true,
                .dropout = o.dropout,
                .call = options.call,
                .batch = options.batch,
                .spread = options.spread,
                .mask = &options.mask},
               options.workspace != nullptr ? *options.workspace->memory_ : own);
  const MutableTensorView normed = pass.forward();
  const MutableTensorView dnormed = pass.take(normed.shape());
  const MutableTensorView memory = pass.take({std::min(normed.dim(0), kLogitRows), o.vocab_size});
  // logits = normed headᵀ   ←  dnormed, dhead, while the block is in the cache
  const TensorView weight = model.head_weight();
  const LaidOut back(model.packed_head_back, transpose(weight, 0, 1), o.dtype);
  const double sum = for_logits(
      LaidOut(model.packed_head, weight, o.dtype), normed, memory,
      [&](dim_t first, const MutableTensorView& logits) {
        const double share = loss(first, logits);
        const dim_t end = first + logits.dim(0);
        ops::linear(back, logits, dnormed.slice(0, first, end));
        ops::linear_backward({normed.slice(0, first, end), weight, logits}, {{}, to.head, {}});
        return share;
      });
  pass.backward(dnormed, to, spread.on_gradients());
  return summed(sum, options.spread);
}

GptWorkspace::GptWorkspace() : memory_(std::make_unique<PassMemory>()) {}
GptWorkspace::GptWorkspace(GptWorkspace&&) noexcept = default;
GptWorkspace& GptWorkspace::operator=(GptWorkspace&&) noexcept = default;
GptWorkspace::~GptWorkspace() = default;
std::size_t GptWorkspace::bytes() const {
  return memory_->bytes();
}
void GptWorkspace::clear() {
  memory_->clear();
}

}  // namespace cephalo
