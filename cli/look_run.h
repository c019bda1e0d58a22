#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cephalo/model/text_model.h"
#include "cephalo/view/head_links.h"
#include "cephalo/view/head_metrics.h"
#include "cephalo/view/recording.h"
#include "cephalo/view/terminal.h"

namespace cephalo::cli {

// A text seen by a model: what `look` shows in one form or another.
struct LookRun {
  std::string text;
  std::string model_name;
  const TextModel& model;
  const Recording& recording;
  bool begun;                       // the first token was put before the text
  std::vector<std::string> pieces;  // in quotes
  std::vector<std::string> labels;  // of tokens
  std::optional<ProbeOptions> probe;
  std::vector<HeadReport> heads;
  std::vector<Prediction> predictions;

  const HeadReport& at(const HeadPlace& place) const {
    return heads[static_cast<std::size_t>(place.layer * recording.num_heads() + place.head)];
  }
};

// The tokens, the maps that show something, every head's labels, what comes next.
std::string look_at_model(const LookRun& run, const TerminalStyle& style);
// A map, a line of numbers and one of links for each head; of one layer or of all.
std::string look_at_heads(const LookRun& run, std::optional<dim_t> layer,
                          const TerminalStyle& style);
// One head in full.
std::string look_at_head(const LookRun& run, const HeadPlace& place, const TerminalStyle& style);
// What one token looks at in every head (of one layer, of all), strongest first.
std::string look_at_token(const LookRun& run, dim_t token, std::optional<dim_t> layer,
                          const TerminalStyle& style);

// Everything as JSON; weights of the heads that were asked for.
std::string look_as_json(const LookRun& run, const std::vector<HeadPlace>& with_weights);

}  // namespace cephalo::cli
