#include "cephalo/effects/patching.h"

#include <cmath>
#include <limits>
#include <vector>

#include "cephalo/core/fail.h"

namespace cephalo {
namespace {

std::vector<Changes> each_position(const GptOptions& model, dim_t tokens) {
  std::vector<Changes> experiments;
  for (dim_t layer = 0; layer < model.num_layers; ++layer) {
    for (dim_t position = 0; position < tokens; ++position) {
      experiments.push_back({{.section = ModelSection::stream,
                              .layer = layer,
                              .kind = ChangeKind::patch,
                              .position = position}});
    }
  }
  return experiments;
}

double difference(const Measured& measured) {
  return measured.logits[0] - measured.logits[1];
}

}  // namespace

Patching patch_each(const KeptPass& clean, const KeptPass& corrupt, std::int64_t answer,
                    std::int64_t wrong, const SweepOptions& options) {
  const GptOptions& model = corrupt.options();
  require(clean.tokens() == corrupt.tokens(),
          "patch_each: the clean text has {} tokens, the corrupt one {}; positions must correspond",
          clean.tokens(), corrupt.tokens());
  const Measures measures{.logits = {answer, wrong}};
  Patching result;
  result.clean = difference(measure(clean, {}, measures, {.threads = options.threads}));
  result.corrupt = difference(measure(corrupt, {}, measures, {.threads = options.threads}));
  const double distance = result.clean - result.corrupt;
  result.divided = std::abs(distance) >= kLeastDifference;

  std::vector<Changes> experiments = each_head(model, ChangeKind::patch);
  const std::size_t heads = experiments.size();
  for (Changes& each : each_position(model, corrupt.tokens())) {
    experiments.push_back(std::move(each));
  }
  SweepOptions patching = options;
  patching.patch_from = &clean;
  const std::vector<Measured> measured = measure_changes(corrupt, experiments, measures, patching);
  constexpr double kNotDone = std::numeric_limits<double>::quiet_NaN();
  result.heads = Tensor::full({model.num_layers, model.num_heads}, kNotDone, DType::f64);
  result.positions = Tensor::full({model.num_layers, corrupt.tokens()}, kNotDone, DType::f64);
  for (std::size_t n = 0; n < measured.size(); ++n) {
    const double d = difference(measured[n]);
    double* to = n < heads ? result.heads.mutable_data_as<double>() + n
                           : result.positions.mutable_data_as<double>() + (n - heads);
    *to = result.divided ? (d - result.corrupt) / distance : d;
  }
  return result;
}

}  // namespace cephalo
