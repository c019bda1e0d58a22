#pragma once

// Inside the library only: parts that the JSON of several reports has.
#include <optional>

#include "cephalo/view/report_head.h"

namespace cephalo {

// NaN is null: JSON has no word for it, and it stands for what is not there.
Json number_json(double value);
Json count_json(const std::optional<dim_t>& value);
// Of any rank, float64, as arrays in arrays.
Json tensor_json(const TensorView& tensor);
// {"id", "piece", "text", "probability"}
Json prediction_json(const LookPrediction& prediction);
// [{"label", "score"}, ...]
Json labels_of(const HeadReport& head);

}  // namespace cephalo
