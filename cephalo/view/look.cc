#include "cephalo/view/look.h"

#include <algorithm>
#include <utility>

#include "cephalo/core/fail.h"
#include "cephalo/text/piece_text.h"

namespace cephalo {
namespace {

constexpr dim_t kProbeLength = 50;  // where so many fit

LookToken token_of(const Bpe& tokenizer, std::int64_t id) {
  // A model may have ids that its tokenizer has not.
  const bool known = id < tokenizer.vocab_size();
  std::string piece(known ? tokenizer.token(static_cast<TokenId>(id)) : "");
  std::string label = piece.empty() ? format_text("#{}", id) : as_label(piece);
  return {id, std::move(piece), std::move(label)};
}

// Maps of heads with these labels are all alike.
bool has_a_map_of_its_own(HeadLabel label) {
  return label != HeadLabel::sink && label != HeadLabel::diffuse;
}

}  // namespace

LookModel look_model(const TextModel& model) {
  return {model.name, model.gpt, model.tokenizer, model.first_token(),
          model.config.trained_context_length};
}

std::vector<std::int64_t> look_ids(const LookModel& model, const std::string& text, bool begin,
                                   const char* function) {
  std::vector<std::int64_t> ids;
  if (begin && model.first_token) ids.push_back(*model.first_token);
  for (const TokenId id : model.tokenizer.encode(text)) ids.push_back(id);
  const dim_t longest = model.gpt.options().context_length;
  require(!ids.empty(), "{}: the text is empty, and no token was prepended", function);
  require(
      std::ssize(ids) <= longest,
      "{}: {} tokens are more than {} reads at once (context_length {}); use a part of the text",
      function, ids.size(), model.name, longest);
  return ids;
}

std::vector<LookToken> look_tokens(const LookModel& model, const std::vector<std::int64_t>& ids) {
  std::vector<LookToken> tokens;
  for (const std::int64_t id : ids) tokens.push_back(token_of(model.tokenizer, id));
  return tokens;
}

LookProbe probe_for_look(const LookModel& model, const LookOptions& options) {
  const dim_t longest = longest_probe(model.gpt.options());
  if (longest == 0) return {};
  const ProbeOptions probe{.length = std::min(kProbeLength, longest),
                           .seed = options.seed,
                           .bos_token_id = model.first_token,
                           .threads = options.threads};
  return {probe, probe_heads(model.gpt, probe)};
}

const HeadReport& LookReport::at(const HeadPlace& place) const {
  require(
      0 <= place.layer && place.layer < num_layers() && 0 <= place.head && place.head < num_heads(),
      "look: there is no layer {} head {}; the model has {} layers of {} heads", place.layer,
      place.head, num_layers(), num_heads());
  return heads[static_cast<std::size_t>(place.layer * num_heads() + place.head)];
}

std::vector<std::string> LookReport::labels() const {
  std::vector<std::string> all;
  for (const LookToken& token : tokens) all.push_back(token.label);
  return all;
}

LookReport look_at(const LookModel& model, const std::string& text, const LookOptions& options) {
  return look_at(model, text, probe_for_look(model, options), options);
}

LookReport look_at(const LookModel& model, const std::string& text, const LookProbe& probe,
                   const LookOptions& options) {
  auto recording = std::make_shared<const Recording>(
      model.gpt, look_ids(model, text, options.begin), options.threads);
  return look_at(model, text, std::move(recording), probe, options);
}

LookReport look_at(const LookModel& model, const std::string& text,
                   std::shared_ptr<const Recording> recording, const LookProbe& probe,
                   const LookOptions& options) {
  LookReport report;
  report.text = text;
  report.model = model.name;
  report.begun = options.begin && model.first_token.has_value();
  report.tokens = look_tokens(model, recording->ids());
  report.trained_context_length = goes_beyond_training(model, recording->tokens());
  report.maps = options.maps;
  report.probe = probe.options;
  report.heads = report_heads(*recording, probe.scores);
  for (const Prediction& next : recording->predictions(options.top)) {
    report.predictions.push_back({token_of(model.tokenizer, next.id), next.probability});
  }
  report.recording = std::move(recording);
  return report;
}

std::vector<const HeadReport*> heads_to_show(const LookReport& report, std::size_t most) {
  std::vector<const HeadReport*> chosen;
  const auto add = [&](const HeadReport* head) {
    const bool known = std::find(chosen.begin(), chosen.end(), head) != chosen.end();
    if (!known && chosen.size() < most) chosen.push_back(head);
  };
  for (std::size_t rank = 0; rank < report.heads.size(); ++rank) {
    for (const HeadLabel label : kHeadLabels) {
      if (!has_a_map_of_its_own(label)) continue;
      const std::vector<LabelExample> examples = label_examples(report.heads, label);
      if (rank < examples.size() && examples[rank].used) add(examples[rank].head);
    }
  }
  std::vector<const HeadReport*> others;
  for (const HeadReport& head : report.heads) others.push_back(&head);
  std::stable_sort(others.begin(), others.end(), [](const HeadReport* a, const HeadReport* b) {
    return a->text.first.value < b->text.first.value;
  });
  for (const HeadReport* head : others) add(head);
  return chosen;
}

std::optional<dim_t> goes_beyond_training(const LookModel& model, dim_t tokens) {
  const std::optional<dim_t>& trained = model.trained_context_length;
  return trained && tokens > *trained ? trained : std::nullopt;
}

std::string training_note(const std::optional<dim_t>& trained_context_length, dim_t tokens) {
  if (!trained_context_length) return "";
  return format_text("Beyond what the model was trained on: {} tokens, trained on {} at a time.",
                     tokens, *trained_context_length);
}

const char* in_words(HeadLabel label) {
  constexpr const char* kWords[] = {"at the token before",
                                    "at what followed the same token earlier",
                                    "at the same token earlier",
                                    "at the first token",
                                    "at itself",
                                    "at all tokens equally"};
  return kWords[static_cast<int>(label)];
}

}  // namespace cephalo
