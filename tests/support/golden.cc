#include "tests/support/golden.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <stdexcept>

#include "cephalo/core/random.h"

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

Mask golden_mask(const nlohmann::json& c) {
  const std::string name = c.at("case");
  const auto dim = [&](const char* key) { return c.at(key).get<dim_t>(); };
  const dim_t q = dim("q_tokens"), kv = dim("kv_tokens");
  const auto random_keep = [&] {
    const Tensor draws = TorchGenerator(21).randn({q, kv});
    Tensor flags = Tensor::zeros({q, kv}, DType::boolean);
    for (dim_t k = 0; k < q * kv; ++k) {
      flags.mutable_data_as<bool>()[k] = draws.data_as<float>()[k] > -0.5F;
    }
    return flags;
  };
  const auto ids = [](dim_t tokens) {
    Tensor t = Tensor::empty({tokens}, DType::i64);
    for (dim_t k = 0; k < tokens; ++k) t.mutable_data_as<std::int64_t>()[k] = k * 3 / tokens;
    return t;
  };
  if (name == "causal") return causal();
  if (name == "causal_top_left") return causal() & positions(Align::top_left);
  if (name == "prefix") return causal(2);
  if (name == "window") return window(2, 1);
  if (name == "causal_window") return causal() & window(2, 0);
  if (name == "lengths") {
    std::vector<dim_t> kv_len = {kv, std::max<dim_t>(1, kv - 2)};
    kv_len.resize(static_cast<std::size_t>(dim("batch")));
    return lengths(kv_len) & positions(Align::top_left);
  }
  if (name == "documents") return documents(ids(q), ids(kv));
  if (name == "keep") return keep(random_keep());
  if (name == "drop") return drop(random_keep());
  if (name == "causal_keep") return keep(random_keep()) & causal();
  if (name == "bias") return bias(TorchGenerator(22).randn({q, kv}));
  if (name == "alibi") {
    std::vector<float> slopes;
    for (dim_t h = 0; h < dim("num_heads"); ++h) {
      slopes.push_back(static_cast<float>(
          std::exp2(-8.0 * static_cast<double>(h + 1) / static_cast<double>(dim("num_heads")))));
    }
    return alibi(slopes);
  }
  return {};
}

}  // namespace cephalo::testing
