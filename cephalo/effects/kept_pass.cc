#include "cephalo/effects/kept_pass.h"

#include <utility>

#include "cephalo/core/fail.h"
#include "cephalo/core/parallel.h"
#include "cephalo/embed/embedding.h"
#include "cephalo/linear/ops.h"
#include "cephalo/model/model_steps.h"

namespace cephalo {
namespace {

Tensor copied(const TensorView& rows) {
  Tensor copy = Tensor::empty(rows.shape(), rows.dtype());
  ops::copy(rows, copy);
  return copy;
}

}  // namespace

KeptPass::KeptPass(const Gpt& model, const std::vector<std::int64_t>& ids, int threads)
    : KeptPass(std::make_shared<const ModelSteps>(model), ids, threads) {}

KeptPass::KeptPass(std::shared_ptr<const ModelSteps> steps, const std::vector<std::int64_t>& ids,
                   int threads)
    : steps_(std::move(steps)), ids_(ids), threads_(threads) {
  const GptOptions& o = options();
  require(!ids_.empty(), "KeptPass: there are no tokens");
  require(tokens() <= o.context_length, "KeptPass: {} tokens exceed context_length ({})", tokens(),
          o.context_length);
  const Tensor checked =
      checked_ids("KeptPass", TensorView(ids_.data(), {1, tokens()}), o.vocab_size);
  const UseThreads limit(threads_);
  const StepRows rows{.batch = 1, .tokens = tokens()};
  Tensor x = Tensor::empty({tokens(), o.d_model}, o.dtype);
  Tensor normed = Tensor::empty(x.shape(), o.dtype);
  Tensor y = Tensor::empty(x.shape(), o.dtype);
  Tensor hidden = Tensor::empty({tokens(), o.d_mlp}, o.dtype);
  steps_->embed(checked, 0, x);
  TensorView added;  // what x still lacks
  for (dim_t l = 0; l < o.num_layers; ++l) {
    Layer& layer = layers_.emplace_back();
    layer.qkv = Tensor::empty({tokens(), steps_->qkv_width()}, o.dtype);
    layer.context = Tensor::empty(x.shape(), o.dtype);
    layer.lse = Tensor::empty({1, o.num_heads, tokens()}, o.dtype);
    steps_->norm_1(l, {x, added, normed});
    layer.resid_pre = copied(x);
    steps_->project_rotated(l, normed, layer.qkv, rows);
    const QkvHeads heads = steps_->heads(layer.qkv, rows);
    steps_->attend(heads.q, heads.k, heads.v, layer.context, layer.lse);
    steps_->project_out(l, layer.context, y);
    steps_->norm_2(l, {x, y, normed});
    layer.resid_mid = copied(x);
    steps_->mlp(l, normed, hidden, hidden, y);
    added = y;
  }
  steps_->last_norm({x, added, normed});
  resid_post_ = std::move(x);
}

const Gpt& KeptPass::model() const {
  return steps_->model();
}

std::size_t KeptPass::bytes() const {
  std::size_t bytes = resid_post_.bytes();
  for (const Layer& layer : layers_) {
    for (const Tensor* t :
         {&layer.resid_pre, &layer.qkv, &layer.context, &layer.lse, &layer.resid_mid}) {
      bytes += t->bytes();
    }
  }
  return bytes;
}

Tensor reference_mean(const std::vector<const KeptPass*>& texts) {
  require(!texts.empty(), "reference_mean: there is no text to take a mean over");
  const GptOptions& o = texts.front()->options();
  Tensor mean = Tensor::zeros({o.num_layers, o.d_model}, DType::f64);
  dim_t tokens = 0;
  for (const KeptPass* text : texts) {
    require(&text->model() == &texts.front()->model(),
            "reference_mean: the texts went through different models");
    tokens += text->tokens();
    for (dim_t l = 0; l < o.num_layers; ++l) {
      const Tensor context = Tensor::copy(text->layer(l).context, DType::f64);
      const auto* from = context.data_as<double>();
      double* sum = mean.mutable_data_as<double>() + l * o.d_model;
      for (dim_t at = 0; at < context.numel(); ++at) sum[at % o.d_model] += from[at];
    }
  }
  ops::scale(mean, 1.0 / static_cast<double>(tokens));
  return mean;
}

}  // namespace cephalo
