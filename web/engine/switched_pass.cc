#include "web/engine/switched_pass.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "cephalo/attention/weights.h"
#include "cephalo/core/fail.h"
#include "cephalo/effects/head_change.h"
#include "cephalo/mask/mask.h"

namespace cephalo::page {
namespace {

bool attends_otherwise(const HeadSwitch& s) {
  return !s.scaled || s.temperature != 1.0 || s.keys != 0;
}

Mask mask_of(const HeadSwitch& s) {
  if (s.keys < 0) return {};
  return s.keys == 0 ? causal() : causal() & window(s.keys - 1, 0);
}

AttendOptions options_of(const HeadSwitch& s, dim_t head_dim) {
  const double scale = s.scaled ? 1.0 / std::sqrt(static_cast<double>(head_dim)) : 1.0;
  AttendOptions options;
  options.scale = scale / s.temperature;
  return options;
}

void check_switch(const HeadSwitch& s, const GptOptions& o) {
  require(0 <= s.layer && s.layer < o.num_layers, "page: layer {} is not in [0, {})", s.layer,
          o.num_layers);
  require(0 <= s.head && s.head < o.num_heads, "page: head {} is not in [0, {})", s.head,
          o.num_heads);
  require(s.temperature > 0.0 && std::isfinite(s.temperature),
          "page: a temperature must be a number above 0");
  require(s.keys >= -1, "page: a window must have at least one key, and it has {}", s.keys);
}

// One head of q, or of k and v that it uses, with the axes that attend takes.
MutableTensorView only(const MutableTensorView& heads, dim_t head) {
  return heads.slice(1, head, head + 1);
}

}  // namespace

SwitchedPass::SwitchedPass(std::shared_ptr<const ModelSteps> steps,
                           std::shared_ptr<const TextPass> text, std::vector<HeadSwitch> switches,
                           ReadRows read)
    : steps_(std::move(steps)),
      text_(std::move(text)),
      switches_(std::move(switches)),
      read_(read),
      first_(options().num_layers) {
  for (const HeadSwitch& s : switches_) {
    check_switch(s, options());
    first_ = std::min(first_, s.layer);
  }
  if (first_ < options().num_layers) {
    x_ = Tensor::copy(text_->layers[static_cast<std::size_t>(first_)].resid_pre);
  } else {
    normed_ = Tensor::copy(text_->normed);
  }
}

QkvHeads SwitchedPass::heads(const Tensor& qkv) const {
  return steps_->heads(MutableTensorView(const_cast<void*>(qkv.data()), qkv.dtype(), qkv.shape()),
                       text_->rows());
}

// q, k and v of the first layer with a switch are those of the text.
void SwitchedPass::project(dim_t layer, Layer& kept) {
  if (layer == first_) {
    kept.qkv = Tensor::copy(text_->layers[static_cast<std::size_t>(layer)].qkv);
    return;
  }
  Tensor normed = Tensor::empty(x_.shape(), x_.dtype());
  steps_->norm_1(layer, {x_, added_, normed});
  kept.qkv = Tensor::empty({text_->tokens(), steps_->qkv_width()}, x_.dtype());
  steps_->project_rotated(layer, normed, kept.qkv, text_->rows());
}

void SwitchedPass::attend(dim_t layer, Layer& kept) const {
  const GptOptions& o = options();
  const QkvHeads h = heads(kept.qkv);
  kept.context = Tensor::empty({text_->tokens(), o.d_model}, x_.dtype());
  kept.lse = Tensor::empty({1, o.num_heads, text_->tokens()}, x_.dtype());
  steps_->attend(h.q, h.k, h.v, kept.context, kept.lse);
  const MutableTensorView context = steps_->query_heads(kept.context, 1);
  for (const HeadSwitch& s : switches_) {
    if (s.layer != layer || !attends_otherwise(s)) continue;
    const dim_t kv_head = s.head / (o.num_heads / o.num_kv_heads);
    attend_into({only(context, s.head), only(kept.lse, s.head)}, only(h.q, s.head),
                only(h.k, kv_head), only(h.v, kv_head), mask_of(s), options_of(s, o.head_dim()));
  }
}

// out: [rows, d_model], the last rows of the text: without what heads that are off pass on
void SwitchedPass::add_off(dim_t layer, const Layer& kept, const MutableTensorView& out) const {
  const GptOptions& o = options();
  const QkvHeads h = heads(kept.qkv);
  const dim_t begin = text_->tokens() - out.dim(0);
  for (const HeadSwitch& s : switches_) {
    if (s.layer != layer || !s.off) continue;
    const dim_t kv_head = s.head / (o.num_heads / o.num_kv_heads);
    const TensorView context =
        kept.context.slice(1, s.head * o.head_dim(), (s.head + 1) * o.head_dim());
    const Change change{.layer = layer, .head = s.head, .kind = *s.off};
    const Tensor by = context_change({s.head, {change}},
                                     {.q = h.q[0][s.head],
                                      .k = h.k[0][kv_head],
                                      .v = h.v[0][kv_head],
                                      .before = context,
                                      .whole = context},
                                     {});
    steps_->add_projected(layer, s.head, by.slice(0, begin, text_->tokens()), out);
  }
}

dim_t SwitchedPass::advance() {
  const GptOptions& o = options();
  const dim_t layer = first_ + std::ssize(layers_);
  if (layer >= o.num_layers) return 0;
  Layer kept;
  project(layer, kept);
  attend(layer, kept);

  // Where the last token alone is read, the rest of the last layer is about its row alone.
  const bool narrow = read_ == ReadRows::last && layer + 1 == o.num_layers;
  const dim_t tokens = text_->tokens();
  const dim_t begin = narrow ? tokens - 1 : 0;
  const dim_t rows = tokens - begin;
  const auto make = [&](dim_t width) { return Tensor::empty({rows, width}, o.dtype); };
  if (narrow) x_ = Tensor::copy(x_.slice(0, begin, tokens));
  Tensor out = make(o.d_model);
  Tensor normed = make(o.d_model);
  Tensor hidden = make(o.d_mlp);
  steps_->project_out(layer, kept.context.slice(0, begin, tokens), out);
  add_off(layer, kept, out);
  steps_->norm_2(layer, {x_, out, normed});
  added_ = make(o.d_model);
  steps_->mlp(layer, normed, hidden, hidden, added_);

  layers_.push_back(std::move(kept));
  const dim_t left = o.num_layers - 1 - layer;
  if (left == 0) finish();
  return left;
}

void SwitchedPass::finish() {
  normed_ = Tensor::empty(x_.shape(), x_.dtype());
  steps_->last_norm({x_, added_, normed_});
}

Tensor SwitchedPass::logits(const TensorView& normed) const {
  Tensor logits = Tensor::empty({normed.dim(0), options().vocab_size}, options().dtype);
  steps_->logits(normed, logits);
  return logits;
}

NextToken SwitchedPass::next() const {
  require(normed_.numel() > 0, "page: the pass under switches has layers left");
  return NextToken(logits(normed_.slice(0, normed_.dim(0) - 1, normed_.dim(0)))[0]);
}

NextToken SwitchedPass::next_as_trained() const {
  return NextToken(text_->logits[0]);
}

Tensor SwitchedPass::weights(dim_t layer) const {
  const GptOptions& o = options();
  require(0 <= layer && layer < o.num_layers, "page: layer {} is not in [0, {})", layer,
          o.num_layers);
  const dim_t at = layer - first_;
  require(at < std::ssize(layers_), "page: the pass under switches has layers left");
  const LayerRows& trained = text_->layers[static_cast<std::size_t>(layer)];
  const bool as_trained = at < 0;
  const Tensor& qkv = as_trained ? trained.qkv : layers_[static_cast<std::size_t>(at)].qkv;
  const Tensor& lse = as_trained ? trained.lse : layers_[static_cast<std::size_t>(at)].lse;
  const QkvHeads h = heads(qkv);
  Tensor all = Tensor::copy(cephalo::weights(h.q, h.k, lse, causal())[0], DType::f32);
  for (const HeadSwitch& s : switches_) {
    if (s.layer != layer || !attends_otherwise(s)) continue;
    const dim_t kv_head = s.head / (o.num_heads / o.num_kv_heads);
    const Tensor one =
        cephalo::weights(only(h.q, s.head), only(h.k, kv_head), lse.slice(1, s.head, s.head + 1),
                         mask_of(s), options_of(s, o.head_dim()));
    all.mutable_view()[s.head].copy_from(one[0][0]);
  }
  return all;
}

std::vector<RowChange> SwitchedPass::changes(dim_t first, dim_t rows) const {
  const dim_t tokens = text_->tokens();
  require(normed_.numel() > 0 && normed_.dim(0) == tokens,
          "page: the pass under switches has not read every token");
  require(0 <= first && 0 <= rows && first + rows <= tokens,
          "page: rows [{}, {}) are not among {} tokens", first, first + rows, tokens);
  const Tensor trained = logits(text_->normed.slice(0, first, first + rows));
  const Tensor switched = logits(normed_.slice(0, first, first + rows));
  std::vector<RowChange> changes;
  for (dim_t i = 0; i < rows; ++i) {
    const NextToken before(trained[i]);
    const NextToken after(switched[i]);
    const bool is_last = first + i + 1 == tokens;
    double by = std::numeric_limits<double>::quiet_NaN();
    if (!is_last) {
      const std::int64_t follows = text_->ids[static_cast<std::size_t>(first + i + 1)];
      by = std::log(after.probability(follows)) - std::log(before.probability(follows));
    }
    changes.push_back({before.divergence_to(after), by});
  }
  return changes;
}

}  // namespace cephalo::page
