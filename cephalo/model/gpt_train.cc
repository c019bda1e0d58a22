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

}  // namespace

double Gpt::loss_pass(const TensorView& ids, const LogitsLoss& loss,
                      const PassOptions& options) const {
  const GptLayers& model = *layers_;
  const GptOptions& o = model.options;
  require(ids.rank() == 2, "Gpt::loss_pass: ids {} must be [batch, tokens]", ids.shape());
  const Tensor checked = checked_ids("Gpt::loss_pass", ids, o.vocab_size);
  GptPass::check_length(o, 0, ids.dim(1));
  if (ids.numel() == 0) return 0.0;
  const UseThreads limit(options.threads);
  PassMemory own;
  GptPass pass(model, checked, {},
               options.workspace != nullptr ? *options.workspace->memory_ : own);
  const MutableTensorView normed = pass.forward();
  const MutableTensorView memory = pass.take({std::min(normed.dim(0), kLogitRows), o.vocab_size});
  return for_logits(LaidOut(model.packed_head, model.head_weight(), o.dtype), normed, memory, loss);
}

double Gpt::train_pass(const TensorView& ids, const LogitsLoss& loss, GptGradients& gradients,
                       const PassOptions& options) const {
  const GptLayers& model = *layers_;
  const GptOptions& o = model.options;
  require(ids.rank() == 2, "Gpt::train_pass: ids {} must be [batch, tokens]", ids.shape());
  const Tensor checked = checked_ids("Gpt::train_pass", ids, o.vocab_size);
  GptPass::check_length(o, 0, ids.dim(1));
  GptGradientTensors& to = *gradients.stored_;
  require(to.fits(model),
          "Gpt::train_pass: these gradients belong to a model of other sizes; GptGradients(model) "
          "makes matching ones");
  if (ids.numel() == 0) return 0.0;
  const UseThreads limit(options.threads);
  PassMemory own;
  GptPass pass(model, checked,
               {.keeps = true, .dropout = o.dropout, .call = options.call, .batch = options.batch},
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
  pass.backward(dnormed, to, options.on_gradients);
  return sum;
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
