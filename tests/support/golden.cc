#include "tests/support/golden.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <stdexcept>

namespace cephalo::testing {
namespace {

bool same_shape(const nlohmann::json& golden, const TensorView& ours) {
  Shape shape;
  for (const auto& dim : golden.at("shape")) shape.push_back(dim.get<dim_t>());
  return shape == ours.shape();
}

// Calls f(golden value, our value) for every sampled element.
template <typename F>
void for_samples(const nlohmann::json& golden, const TensorView& ours, F&& f) {
  const Tensor dense = Tensor::copy(ours, DType::f64);
  const auto* values = dense.data_as<double>();
  const auto step = golden.at("step").get<std::size_t>();
  std::size_t at = 0;
  for (const auto& value : golden.at("values")) {
    f(value.get<double>(), values[at]);
    at += step;
  }
}

}  // namespace

nlohmann::json read_golden(const std::string& name) {
  std::ifstream file(std::string(CEPHALO_SOURCE_DIR) + "/tests/golden/" + name);
  if (!file) throw std::runtime_error("no golden file " + name);
  return nlohmann::json::parse(file);
}

double golden_difference(const nlohmann::json& golden, const TensorView& ours) {
  if (!same_shape(golden, ours)) return std::numeric_limits<double>::infinity();
  double largest = 0.0;
  for_samples(golden, ours, [&](double theirs, double mine) {
    const double difference = std::abs(theirs - mine);
    largest = std::isnan(difference) ? std::numeric_limits<double>::infinity()
                                     : std::max(largest, difference);
  });
  return largest;
}

double golden_magnitude(const nlohmann::json& golden) {
  double largest = 0.0;
  for (const auto& value : golden.at("values")) {
    largest = std::max(largest, std::abs(value.get<double>()));
  }
  return largest;
}

int golden_differing_bits(const nlohmann::json& golden, const TensorView& ours) {
  if (!same_shape(golden, ours)) return std::numeric_limits<int>::max();
  const bool is_double = ours.dtype() == DType::f64;
  int differing = 0;
  for_samples(golden, ours, [&](double theirs, double mine) {
    const bool equal =
        is_double ? theirs == mine : static_cast<float>(theirs) == static_cast<float>(mine);
    differing += equal ? 0 : 1;
  });
  return differing;
}

}  // namespace cephalo::testing
