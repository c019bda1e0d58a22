#include "cephalo/view/report_json.h"

#include <cmath>

namespace cephalo {

Json number_json(double value) {
  return std::isnan(value) ? Json() : Json(value);
}

Json count_json(const std::optional<dim_t>& value) {
  return value ? Json(*value) : Json();
}

Json tensor_json(const TensorView& tensor) {
  if (tensor.rank() == 0) return number_json(tensor.at({}));
  Json json = Json::array();
  for (dim_t i = 0; i < tensor.dim(0); ++i) json.push_back(tensor_json(tensor[i]));
  return json;
}

Json prediction_json(const LookPrediction& prediction) {
  Json json = token_json(prediction.token);
  json["probability"] = prediction.probability;
  return json;
}

Json labels_of(const HeadReport& head) {
  Json labels = Json::array();
  for (const LabelScore& label : head.labels) {
    labels.push_back({{"label", name(label.label)}, {"score", label.score}});
  }
  return labels;
}

}  // namespace cephalo
