#include "cephalo/io/json_value.h"
#include "cephalo/text/byte_alphabet.h"
#include "cli/look_run.h"

namespace cephalo::cli {
namespace {

// A mean over no rows is not 0.
Json number_of(const Score& score) {
  return score.rows > 0 ? Json(score.value) : Json();
}

Json metrics_of(const HeadReport& head) {
  const HeadMetrics& m = head.text;
  Json json = {{"previous", number_of(m.previous)},
               {"first", number_of(m.first)},
               {"current", number_of(m.current)},
               {"duplicate", number_of(m.duplicate)},
               {"induction", number_of(m.induction)},
               {"entropy", number_of(m.entropy)},
               {"effective_tokens", m.effective_tokens},
               {"confidence", m.confidence},
               {"distance", m.distance}};
  if (head.probe) {
    json["probe_duplicate"] = head.probe->duplicate.value;
    json["probe_induction"] = head.probe->induction.value;
  }
  return json;
}

// Row i has the weights of the keys that it may look at: i + 1 of them.
Json weights_of(const Recording& recording, const HeadPlace& place) {
  const Tensor weights = recording.weights(place.layer, {.heads = {place.head}});
  Json rows = Json::array();
  for (dim_t i = 0; i < weights.dim(1); ++i) {
    Json row = Json::array();
    for (dim_t j = 0; j <= i; ++j) row.push_back(static_cast<float>(weights.at({0, i, j})));
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

std::string look_as_json(const LookRun& run, const std::vector<HeadPlace>& with_weights) {
  const GptOptions& o = run.model.gpt.options();
  Json json = {{"text", run.text},           {"model", run.model_name},
               {"num_layers", o.num_layers}, {"num_heads", o.num_heads},
               {"begun", run.begun},         {"tokens", Json::array()},
               {"heads", Json::array()},     {"predictions", Json::array()}};
  // Pieces as vocab.json writes them: JSON has no place for half a character.
  const auto token_of = [&](std::int64_t id) {
    return Json{{"id", id}, {"piece", to_byte_characters(run.model.piece(id))}};
  };
  for (const std::int64_t id : run.recording.ids()) json["tokens"].push_back(token_of(id));
  if (run.probe) {
    json["probe"] = {
        {"length", run.probe->length}, {"draws", run.probe->draws}, {"seed", run.probe->seed}};
  }
  for (const HeadReport& head : run.heads) {
    Json labels = Json::array();
    for (const LabelScore& label : head.labels) {
      labels.push_back({{"label", name(label.label)}, {"score", label.score}});
    }
    json["heads"].push_back({{"layer", head.layer},
                             {"head", head.head},
                             {"labels", std::move(labels)},
                             {"metrics", metrics_of(head)}});
  }
  for (const HeadPlace& place : with_weights) {
    const auto at = static_cast<std::size_t>(place.layer * o.num_heads + place.head);
    json["heads"][at]["weights"] = weights_of(run.recording, place);
  }
  for (const Prediction& prediction : run.predictions) {
    Json token = token_of(prediction.id);
    token["probability"] = prediction.probability;
    json["predictions"].push_back(std::move(token));
  }
  return json.dump({.replace = true}) + "\n";
}

}  // namespace cephalo::cli
