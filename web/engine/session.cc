#include "web/engine/session.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "cephalo/attention/reference/trace.h"
#include "cephalo/attention/weights.h"
#include "cephalo/core/fail.h"
#include "cephalo/core/views.h"
#include "cephalo/embed/embedding.h"
#include "cephalo/mask/mask.h"
#include "cephalo/text/byte_alphabet.h"
#include "cephalo/view/head_json.h"
#include "cephalo/view/predictions.h"
#include "cephalo/view/value_norms.h"

namespace cephalo::page {
namespace {

std::shared_ptr<const TextModel> load(const ModelFiles& files) {
  LoadedGpt loaded = load_gpt(files.name, std::string(files.config_json), files.parameters);
  const dim_t vocab_size = loaded.model.options().vocab_size;
  return std::make_shared<const TextModel>(
      TextModel{files.name, std::move(loaded.model), loaded.config,
                Bpe::parse(files.vocab_json, files.merges_txt, vocab_size)});
}

Json shape_json(const Shape& shape) {
  Json sizes = Json::array();
  for (int axis = 0; axis < shape.rank(); ++axis) sizes.push_back(shape[axis]);
  return sizes;
}

// A step of a batch of one: what belongs to the head, or all where heads are not apart.
TensorView of_head(const Step& step, dim_t head) {
  const TensorView value = step.value;
  if (value.rank() < 4) return value[0];
  const bool tokens_first = step.key.ends_with("_split") || step.key.ends_with("_rotated");
  return value[0].select(tokens_first ? 1 : 0, head);
}

Json step_json(const Step& step, const TensorView& of_this_head, std::size_t offset) {
  const Explanation said = explain(step);
  return {{"number", step.number},
          {"name", step.name},
          {"key", step.key},
          {"formula", step.formula},
          {"shape", shape_json(step.shape)},
          {"note", step.note},
          {"what", said.what},
          {"why", said.why},
          {"effect", said.effect},
          {"head_shape", shape_json(of_this_head.shape())},
          {"offset", offset}};
}

}  // namespace

// The steps keep the model alive for passes that outlive the session.
Session::Session(const ModelFiles& files)
    : model_(load(files)),
      steps_(new ModelSteps(model_->gpt),
             [model = model_](const ModelSteps* steps) { delete steps; }) {}

Json Session::token_json(std::int64_t id) const {
  return {{"id", id}, {"piece", to_byte_characters(model_->piece(id))}};
}

Json Session::tokenize(std::string_view text) const {
  Json tokens = Json::array();
  for (const std::int64_t id : model_->encode(text, true)) tokens.push_back(token_json(id));
  return tokens;
}

void Session::start(const std::vector<std::int64_t>& ids) {
  require(!ids.empty(), "page: there are no tokens to look at");
  require(std::ssize(ids) <= options().context_length,
          "page: {} tokens are more than {} reads at once ({})", ids.size(), model_->name,
          options().context_length);
  const auto tokens = std::ssize(ids);
  const Tensor checked =
      checked_ids("page", TensorView(ids.data(), {tokens}), options().vocab_size);
  TextPass pass{ids, {}, Tensor::empty({tokens, options().d_model}, options().dtype), {}, {}, {}};
  steps_->embed(view(checked, {1, tokens}), 0, pass.x);
  running_ = std::move(pass);
}

dim_t Session::advance() {
  require(running_.has_value(), "page: no pass was started");
  TextPass& pass = *running_;
  const GptOptions& o = options();
  const StepRows rows = pass.rows();
  const auto layer = static_cast<dim_t>(pass.layers.size());
  const auto make = [&](dim_t width) { return Tensor::empty({rows.tokens, width}, o.dtype); };
  LayerRows kept{{},
                 make(o.d_model),
                 make(steps_->qkv_width()),
                 Tensor::empty({1, o.num_heads, rows.tokens}, o.dtype)};
  Tensor context = make(o.d_model);
  Tensor out = make(o.d_model);
  Tensor normed = make(o.d_model);
  Tensor hidden = make(o.d_mlp);

  steps_->norm_1(layer, {pass.x, pass.added, kept.normed});
  kept.resid_pre = Tensor::copy(pass.x);
  steps_->project_rotated(layer, kept.normed, kept.qkv, rows);
  const QkvHeads h = heads(kept);
  steps_->attend(h.q, h.k, h.v, context, kept.lse);
  steps_->project_out(layer, context, out);
  steps_->norm_2(layer, {pass.x, out, normed});
  pass.added = make(o.d_model);
  steps_->mlp(layer, normed, hidden, hidden, pass.added);

  pass.layers.push_back(std::move(kept));
  const dim_t left = o.num_layers - std::ssize(pass.layers);
  if (left == 0) finish();
  return left;
}

// The last token alone says what comes next.
void Session::finish() {
  TextPass& pass = *running_;
  const dim_t tokens = pass.rows().tokens;
  pass.normed = Tensor::empty({tokens, options().d_model}, options().dtype);
  steps_->last_norm({pass.x, pass.added, pass.normed});
  pass.logits = Tensor::empty({1, options().vocab_size}, options().dtype);
  steps_->logits(pass.normed.slice(0, tokens - 1, tokens), pass.logits);
  finished_ = std::make_shared<const TextPass>(std::move(pass));
  running_.reset();
}

std::shared_ptr<const TextPass> Session::text_pass() const {
  require(finished_ != nullptr, "page: no text was run yet");
  return finished_;
}

const LayerRows& Session::layer_rows(dim_t layer) const {
  const TextPass& pass = finished();
  require(0 <= layer && layer < std::ssize(pass.layers), "page: layer {} is not in [0, {})", layer,
          pass.layers.size());
  return pass.layers[static_cast<std::size_t>(layer)];
}

QkvHeads Session::heads(const LayerRows& layer) const {
  const MutableTensorView qkv(const_cast<void*>(layer.qkv.data()), layer.qkv.dtype(),
                              layer.qkv.shape());
  return steps_->heads(qkv, {1, layer.qkv.dim(0), 0});
}

OpeningText Session::opening_text(const std::vector<Prediction>& likely) const {
  OpeningText text;
  const auto tokens = std::ssize(finished().ids);
  for (const std::int64_t id : finished().ids) text.pieces.emplace_back(model_->piece(id));
  if (!likely.empty()) text.next = model_->piece(likely.front().id);
  text.last_weights = [this, tokens](const HeadPlace& place) {
    return weights(place.layer, place.head, tokens - 1, 1).reshaped({tokens});
  };
  return text;
}

Json Session::report(dim_t top) const {
  const TextPass& pass = finished();
  const auto tokens = std::ssize(pass.ids);
  std::vector<HeadReport> reports;
  Json all = Json::array();
  for (dim_t layer = 0; layer < options().num_layers; ++layer) {
    const QkvHeads h = heads(layer_rows(layer));
    const Tensor sums =
        row_sums(h.q, h.k, layer_rows(layer).lse, TensorView(pass.ids.data(), {tokens}), causal());
    for (dim_t head = 0; head < options().num_heads; ++head) {
      HeadReport report{layer, head, head_metrics(sums[0][head]), {}, {}};
      const auto at = static_cast<std::size_t>(layer * options().num_heads + head);
      if (at < probe_.size()) report.probe = probe_[at];
      report.labels = head_labels(report.text, report.probe ? &*report.probe : nullptr);
      all.push_back(head_json(report));
      reports.push_back(std::move(report));
    }
  }
  const std::vector<Prediction> likely = likeliest(pass.logits[0], top);
  const HeadPlace opening = opening_head(reports, opening_text(likely));
  Json next = Json::array();
  for (const Prediction& prediction : likely) {
    Json token = token_json(prediction.id);
    token["probability"] = prediction.probability;
    next.push_back(std::move(token));
  }
  return {{"heads", std::move(all)},
          {"predictions", std::move(next)},
          {"opening", {{"layer", opening.layer}, {"head", opening.head}}}};
}

Tensor Session::weights(dim_t layer, dim_t head, dim_t first_row, dim_t rows) const {
  const LayerRows& kept = layer_rows(layer);
  const QkvHeads h = heads(kept);
  WeightsSelection selection;
  if (head >= 0) selection.heads = {head};
  selection.rows.resize(static_cast<std::size_t>(std::max<dim_t>(rows, 0)));
  std::iota(selection.rows.begin(), selection.rows.end(), first_row);
  Tensor found = cephalo::weights(h.q, h.k, kept.lse, causal(), {}, selection);
  const Shape shape{found.dim(1), found.dim(2), found.dim(3)};
  return Tensor::copy(std::move(found).reshaped(shape), DType::f32);
}

Tensor Session::value_norms(dim_t layer) const {
  std::vector<dim_t> all(static_cast<std::size_t>(options().num_heads));
  std::iota(all.begin(), all.end(), dim_t{0});
  return cephalo::value_norms(heads(layer_rows(layer)).v[0], steps_->out_weight(layer), all);
}

std::vector<float> Session::steps(dim_t layer, dim_t head, Json& described) const {
  const LayerRows& kept = layer_rows(layer);
  require(0 <= head && head < options().num_heads, "page: head {} is not in [0, {})", head,
          options().num_heads);
  const dim_t tokens = kept.normed.dim(0);
  const Trace trace =
      model_->gpt.attention(layer).trace(view(kept.normed, {1, tokens, options().d_model}));
  std::vector<float> numbers;
  described = Json::array();
  for (const Step& step : trace) {
    const TensorView value = of_head(step, head);
    described.push_back(step_json(step, value, numbers.size()));
    const Tensor dense = Tensor::copy(value, DType::f32);
    const auto* from = dense.data_as<float>();
    numbers.insert(numbers.end(), from, from + dense.numel());
  }
  return numbers;
}

}  // namespace cephalo::page
