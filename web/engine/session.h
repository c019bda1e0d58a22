#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cephalo/io/json_value.h"
#include "cephalo/model/text_model.h"
#include "cephalo/view/head_metrics.h"
#include "cephalo/view/opening_head.h"
#include "cephalo/view/predictions.h"
#include "web/engine/text_pass.h"

namespace cephalo::page {

// The files of a model, byte for byte.
struct ModelFiles {
  std::string name;
  std::string_view config_json;
  std::span<const std::byte> parameters;  // model.safetensors
  std::string_view vocab_json;
  std::string_view merges_txt;
};

// A model and one text on its way through it, layer by layer: between two layers the caller may
// turn to another text. What a page asks for comes from the last pass that was finished.
class Session {
 public:
  explicit Session(const ModelFiles& files);

  const GptOptions& options() const { return model_->gpt.options(); }

  // What heads show on random repeats, [layer][head]: labels need it, and it is the same for every
  // text.
  void set_probe(std::vector<ProbeScores> scores) { probe_ = std::move(scores); }

  // [{"id", "piece"}], with the token that begins a text before it
  Json tokenize(std::string_view text) const;

  // A pass over these tokens begins: an error says which id is wrong, or how many are too many.
  void start(const std::vector<std::int64_t>& ids);
  // The next layer -> how many are left; the last one also makes the logits of the last token.
  dim_t advance();

  // {"heads", "predictions"}: as cephalo look's; {"opening"}: the head to open with
  Json report(dim_t top) const;
  // -> [num_heads or 1, rows, tokens], float32; head −1: all of the layer
  Tensor weights(dim_t layer, dim_t head, dim_t first_row, dim_t rows) const;
  // -> [num_heads, tokens], float64
  Tensor value_norms(dim_t layer) const;
  // Every step of one head, as cephalo trace shows them: what it is to `described`, the numbers
  // of all steps one after the other as the result.
  std::vector<float> steps(dim_t layer, dim_t head, Json& described) const;

  // The token ids of every draw of the probe, as probe_heads draws them: [[id, …], …]
  Json probe_draws(dim_t length, dim_t draws, std::uint64_t seed) const;
  // A pass beside the one that is shown: this one is set aside before the other one finishes, and
  // taken back afterwards.
  void set_aside();
  void take_back();

  // What passes under switches start from.
  std::shared_ptr<const TextPass> text_pass() const;
  const std::shared_ptr<const ModelSteps>& model_steps() const { return steps_; }
  Json token_json(std::int64_t id) const;

 private:
  const TextPass& finished() const { return *text_pass(); }
  const LayerRows& layer_rows(dim_t layer) const;
  QkvHeads heads(const LayerRows& layer) const;
  void finish();
  OpeningText opening_text(const std::vector<Prediction>& likely) const;

  std::shared_ptr<const TextModel> model_;
  std::shared_ptr<const ModelSteps> steps_;
  std::vector<ProbeScores> probe_;
  std::optional<TextPass> running_;
  std::shared_ptr<const TextPass> finished_, aside_;
};

}  // namespace cephalo::page
