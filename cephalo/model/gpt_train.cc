// The passes of a GPT: forward, forward with a loss, forward and back.
#include <algorithm>
#include <utility>

#include "cephalo/core/fail.h"
#include "cephalo/core/parallel.h"
#include "cephalo/core/views.h"
#include "cephalo/linear/packed_linear.h"
#include "cephalo/linear/project_backward.h"
#include "cephalo/model/gpt.h"
#include "cephalo/model/gpt_layers.h"
#include "cephalo/model/gpt_pass.h"

namespace cephalo {
namespace {

void check_length(const GptOptions& o, dim_t before, dim_t tokens) {
  require(before > 0 || tokens <= o.context_length, "Gpt: {} tokens exceed context_length ({})",
          tokens, o.context_length);
  require(before + tokens <= o.context_length,
          "Gpt: tokens ({} in the cache and {} new) exceed context_length ({})", before, tokens,
          o.context_length);
}

void check_cache(const GptLayers& model, const GptCache& cache) {
  require(cache.layers.size() == model.blocks.size(),
          "Gpt: the cache is for {} layers, this model has {}; new_cache() makes a fitting one",
          cache.layers.size(), model.blocks.size());
  for (const KVCache& layer : cache.layers) {
    require(layer.lengths() == cache.layers.front().lengths() &&
                std::all_of(layer.lengths().begin(), layer.lengths().end(),
                            [&](dim_t length) { return length == layer.tokens(); }),
            "Gpt: sequences and layers of the cache must be equally long");
  }
}

// rows: [batch · tokens, width] -> the last row of each sequence: [batch, width]
Tensor last_rows(const TensorView& rows, dim_t batch, dim_t tokens) {
  Tensor last = Tensor::empty({batch, rows.dim(1)}, rows.dtype());
  for (dim_t b = 0; b < batch; ++b) {
    last.mutable_view()[b].copy_from(rows[(b + 1) * tokens - 1]);
  }
  return last;
}

// Calls step(first_row, logits) for the rows' logits, block after block; logits use one memory.
template <typename Step>
double for_logits(const PackedLinear& head, const TensorView& normed,
                  const MutableTensorView& memory, const Step& step) {
  double sum = 0.0;
  for (dim_t first = 0; first < normed.dim(0); first += kLogitRows) {
    const dim_t end = std::min(normed.dim(0), first + kLogitRows);
    const MutableTensorView logits = memory.slice(0, 0, end - first);
    head.apply(normed.slice(0, first, end), logits);
    sum += step(first, logits);
  }
  return sum;
}

}  // namespace

Tensor Gpt::operator()(const TensorView& ids, const GptCall& call) const {
  const GptLayers& model = *layers_;
  const GptOptions& o = model.options;
  const Tensor checked = checked_ids("Gpt", ids, o.vocab_size);
  const dim_t batch = ids.rank() == 2 ? ids.dim(0) : 1;
  const dim_t tokens = ids.dim(-1);
  if (call.cache != nullptr) check_cache(model, *call.cache);
  check_length(o, call.cache != nullptr ? call.cache->tokens() : 0, tokens);
  Shape shape = ids.shape();
  if (call.last_only) shape[-1] = std::min<dim_t>(tokens, 1);
  shape.push_back(o.vocab_size);
  if (numel(shape) == 0) return Tensor::empty(shape, o.dtype);

  const UseThreads limit(call.threads);
  PassMemory memory;
  GptPass::Options options{.cache = call.cache};
  if (call.on_attention) options.on_attention = &call.on_attention;
  GptPass pass(model, view(checked, {batch, tokens}), options, memory);
  const MutableTensorView normed = pass.forward();
  const Tensor last = call.last_only ? last_rows(normed, batch, tokens) : Tensor();
  const TensorView rows = call.last_only ? TensorView(last) : TensorView(normed);
  Tensor logits = Tensor::empty({rows.dim(0), o.vocab_size}, o.dtype);
  if (model.packed_head) {
    model.packed_head->apply(rows, logits);
  } else {
    PackedLinear(model.head_weight(), {}, o.dtype).apply(rows, logits);
  }
  return std::move(logits).reshaped(shape);
}

double Gpt::loss_pass(const TensorView& ids, const LogitsLoss& loss,
                      const PassOptions& options) const {
  const GptLayers& model = *layers_;
  const GptOptions& o = model.options;
  require(ids.rank() == 2, "Gpt::loss_pass: ids {} must be [batch, tokens]", ids.shape());
  const Tensor checked = checked_ids("Gpt::loss_pass", ids, o.vocab_size);
  check_length(o, 0, ids.dim(1));
  if (ids.numel() == 0) return 0.0;
  const UseThreads limit(options.threads);
  PassMemory own;
  GptPass pass(model, checked, {},
               options.workspace != nullptr ? *options.workspace->memory_ : own);
  const MutableTensorView normed = pass.forward();
  const MutableTensorView memory = pass.take({std::min(normed.dim(0), kLogitRows), o.vocab_size});
  return for_logits(PackedLinear(model.head_weight(), {}, o.dtype), normed, memory, loss);
}

double Gpt::train_pass(const TensorView& ids, const LogitsLoss& loss, GptGradients& gradients,
                       const PassOptions& options) const {
  const GptLayers& model = *layers_;
  const GptOptions& o = model.options;
  require(ids.rank() == 2, "Gpt::train_pass: ids {} must be [batch, tokens]", ids.shape());
  const Tensor checked = checked_ids("Gpt::train_pass", ids, o.vocab_size);
  check_length(o, 0, ids.dim(1));
  GptGradientTensors& to = *gradients.stored_;
  require(to.fits(model),
          "Gpt::train_pass: these gradients belong to a model of other sizes; GptGradients(model) "
          "makes fitting ones");
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
  const PackedLinear back(transpose(weight, 0, 1), {}, o.dtype);
  const double sum = for_logits(
      PackedLinear(weight, {}, o.dtype), normed, memory,
      [&](dim_t first, const MutableTensorView& logits) {
        const double share = loss(first, logits);
        const dim_t end = first + logits.dim(0);
        back.apply(logits, dnormed.slice(0, first, end));
        project_backward({normed.slice(0, first, end), weight, logits}, {{}, to.head, {}});
        return share;
      });
  pass.backward(dnormed, to);
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
