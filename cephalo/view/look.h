#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cephalo/model/text_model.h"
#include "cephalo/view/head_links.h"
#include "cephalo/view/head_metrics.h"
#include "cephalo/view/recording.h"
#include "cephalo/view/weight_map.h"

#pragma GCC visibility push(default)
namespace cephalo {

// What a look needs of a model: its arithmetic, and letters for its tokens.
struct LookModel {
  std::string name;
  const Gpt& gpt;
  const Bpe& tokenizer;
  std::optional<std::int64_t> first_token;  // that begins a text
  // Where the model reads more tokens than it was trained on: how many these were.
  std::optional<dim_t> trained_context_length = {};
};
LookModel look_model(const TextModel& model);

// What a look shows besides the heads.
struct LookOptions {
  bool begin = true;         // first_token comes before the text
  dim_t top = 5;             // how many of the likeliest next tokens
  std::uint64_t seed = 123;  // of the random tokens that heads are probed with
  int threads = 0;
  MapOptions maps = {};  // what the maps of heads show
};

// What heads do on random tokens that repeat: the same for every text, so one serves many looks.
// Without options: the model is too small for a probe.
struct LookProbe {
  std::optional<ProbeOptions> options;
  std::vector<std::vector<ProbeScores>> scores;  // [layer][head]
};
LookProbe probe_for_look(const LookModel& model, const LookOptions& options = {});

// A token of the text.
struct LookToken {
  std::int64_t id;
  std::string piece;  // its bytes
  std::string label;  // in letters, without the space before a word
};

// The ids of a text; with `begin`, first_token before them. An error that begins with `function`:
// no token, or more than the model reads at once.
std::vector<std::int64_t> look_ids(const LookModel& model, const std::string& text, bool begin,
                                   const char* function = "look");
std::vector<LookToken> look_tokens(const LookModel& model, const std::vector<std::int64_t>& ids);

// A token that may come next.
struct LookPrediction {
  LookToken token;
  double probability;
};

// A text seen by a model: what terminal, picture, page, JSON and Python draw.
struct LookReport {
  std::string text;
  std::string model;                            // its name
  bool begun = false;                           // the first token was prepended
  std::optional<dim_t> trained_context_length;  // where the text is longer than that
  std::vector<LookToken> tokens;
  std::optional<ProbeOptions> probe;
  std::vector<HeadReport> heads;  // layer by layer
  std::vector<LookPrediction> predictions;
  std::shared_ptr<const Recording> recording;  // weights, links and maps of any head
  MapOptions maps = {};                        // what these show

  dim_t num_layers() const { return recording->num_layers(); }
  dim_t num_heads() const { return recording->num_heads(); }
  const HeadReport& at(const HeadPlace& place) const;  // an error: there is no such head
  std::vector<std::string> labels() const;             // of the tokens
};

// The model runs once. It must live as long as the report, unchanged. An error: the text has no
// token, or more than the model reads at once.
LookReport look_at(const LookModel& model, const std::string& text,
                   const LookOptions& options = {});
// With a probe that was made before.
LookReport look_at(const LookModel& model, const std::string& text, const LookProbe& probe,
                   const LookOptions& options = {});
// Of a recording of that text; options.begin says whether it was begun.
LookReport look_at(const LookModel& model, const std::string& text,
                   std::shared_ptr<const Recording> recording, const LookProbe& probe,
                   const LookOptions& options = {});

// Where there is no room for all heads: of every label that the text shows the clearest one, then
// the next ones; then those that look at the first token least.
std::vector<const HeadReport*> heads_to_show(const LookReport& report, std::size_t most);

// Of a model that reads more than it was trained on, and a text that makes use of that: how many
// tokens these were.
std::optional<dim_t> goes_beyond_training(const LookModel& model, dim_t tokens);
// That in one sentence; "" where the text does not go beyond.
std::string training_note(const std::optional<dim_t>& trained_context_length, dim_t tokens);

// What a head with this label does, after "looks".
const char* in_words(HeadLabel label);

}  // namespace cephalo
#pragma GCC visibility pop
