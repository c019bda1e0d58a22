#include "cephalo/view/look_json.h"

#include <cmath>

#include "cephalo/view/head_json.h"
#include "cephalo/view/report_json.h"

namespace cephalo {
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

// What a map leaves out is null.
Json weights_of(const LookReport& report, const HeadPlace& place) {
  const Tensor weights = Tensor::copy(
      map_weights(*report.recording, place.layer, {.heads = {place.head}}, report.maps),
      DType::f32);
  const float* weight = weights.data_as<float>();
  Json rows = Json::array();
  for (dim_t i = 0; i < weights.dim(1); ++i, weight += weights.dim(2)) {
    Json row = Json::array();
    for (dim_t j = 0; j <= i; ++j) {
      row.push_back(std::isnan(weight[j]) ? Json() : Json(weight[j]));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

Json head_json(const HeadReport& head) {
  return {{"layer", head.layer},
          {"head", head.head},
          {"labels", labels_of(head)},
          {"metrics", metrics_of(head)}};
}

std::string to_json(const LookReport& report, const std::vector<HeadPlace>& with_weights) {
  Json json = report_head("cephalo.look/1", report.model, report.recording->model(), report.tokens,
                          report.begun);
  json["text"] = report.text;
  json["num_layers"] = report.num_layers();
  json["num_heads"] = report.num_heads();
  json["begun"] = report.begun;
  json["trained_context_length"] = count_json(report.trained_context_length);
  json["maps"] = {{"no_first", report.maps.no_first},
                  {"value_weighted", report.maps.value_weighted}};
  json["heads"] = Json::array();
  json["predictions"] = Json::array();
  if (report.probe) {
    json["probe"] = {{"length", report.probe->length},
                     {"draws", report.probe->draws},
                     {"seed", report.probe->seed}};
  }
  for (const HeadReport& head : report.heads) json["heads"].push_back(head_json(head));
  for (const HeadPlace& place : with_weights) {
    const HeadReport& head = report.at(place);
    const auto index = static_cast<std::size_t>(&head - report.heads.data());
    json["heads"][index]["weights"] = weights_of(report, place);
  }
  for (const LookPrediction& prediction : report.predictions) {
    json["predictions"].push_back(prediction_json(prediction));
  }
  return json.dump({.replace = true}) + "\n";
}

}  // namespace cephalo
