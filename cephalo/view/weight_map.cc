#include "cephalo/view/weight_map.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cephalo/core/fail.h"

namespace cephalo {
namespace {

constexpr double kLeftOut = std::numeric_limits<double>::quiet_NaN();
constexpr dim_t kBlockRows = 128;  // of weights that are there at a time

// row: [tokens]; what is left of it adds up to 1, where something is left
void leave_out_first(double* row, dim_t tokens) {
  row[0] = kLeftOut;
  double sum = 0.0;
  for (dim_t j = 1; j < tokens; ++j) sum += row[j];
  for (dim_t j = 1; j < tokens && sum > 0.0; ++j) row[j] /= sum;
}

// Which of `cells` equal parts of the tokens holds token i.
dim_t cell_of(dim_t i, dim_t tokens, dim_t cells) {
  return i * cells / tokens;
}

}  // namespace

const char* reason(const MapOptions& maps) {
  if (maps.no_first && maps.value_weighted) {
    return "A cell shows how much of what a head adds comes from that token, the first one left "
           "out: heads rest there when they find nothing, since weights must add up to 1.";
  }
  if (maps.no_first) {
    return "The first token is left out: heads rest there when they find nothing, since weights "
           "must add up to 1, and that hides what they do find.";
  }
  if (maps.value_weighted) {
    return "A cell shows how much of what a head adds comes from that token: many heads rest on "
           "the first one, whose value moves little.";
  }
  return "";
}

Tensor map_weights(const Recording& recording, dim_t layer, const WeightsSelection& selection,
                   const MapOptions& maps) {
  Tensor weights = Tensor::copy(recording.weights(layer, selection), DType::f64);
  if (maps.value_weighted) {
    weights = value_weighted(weights, recording.value_norms(layer, selection.heads));
  }
  if (!maps.no_first) return weights;
  auto* row = weights.mutable_data_as<double>();
  for (dim_t k = 0; k < weights.dim(0) * weights.dim(1); ++k, row += weights.dim(2)) {
    leave_out_first(row, weights.dim(2));
  }
  return weights;
}

Tensor weight_map(const Recording& recording, const HeadPlace& place, dim_t cells,
                  const MapOptions& maps) {
  if (maps.plain()) return recording.pooled(place.layer, place.head, cells).largest;
  const dim_t tokens = recording.tokens();
  require(cells >= 1, "weight_map: cells ({}) must be >= 1", cells);
  cells = std::min(cells, tokens);
  Tensor map = Tensor::full({cells, cells}, kLeftOut, DType::f64);
  auto* cell = map.mutable_data_as<double>();
  for (dim_t begin = 0; begin < tokens; begin += kBlockRows) {
    WeightsSelection rows{.heads = {place.head}};
    for (dim_t i = begin; i < std::min(begin + kBlockRows, tokens); ++i) rows.rows.push_back(i);
    const Tensor weights = map_weights(recording, place.layer, rows, maps);
    const auto* weight = weights.data_as<double>();
    for (const dim_t i : rows.rows) {
      double* line = cell + cell_of(i, tokens, cells) * cells;
      for (dim_t j = 0; j <= i; ++j) {
        double& largest = line[cell_of(j, tokens, cells)];
        largest = std::fmax(largest, weight[j]);  // of which NaN counts only where all are
      }
      weight += tokens;
    }
  }
  return map;
}

}  // namespace cephalo
