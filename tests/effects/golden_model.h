#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cephalo/core/random.h"
#include "cephalo/model/gpt.h"
#include "tests/support/golden.h"

namespace cephalo::testing {

// A case of effects.json with its model and ids, drawn as make_effects.py draws them.
struct GoldenEffects {
  nlohmann::json golden;
  Gpt model;
  std::vector<std::int64_t> ids;
};

inline Gpt golden_model(const nlohmann::json& c, DType dtype) {
  const auto& o = c.at("options");
  Gpt model(
      {.vocab_size = o.at("vocab_size"),
       .context_length = o.at("context_length"),
       .d_model = o.at("d_model"),
       .num_heads = o.at("num_heads"),
       .num_kv_heads = o.at("num_kv_heads"),
       .num_layers = o.at("num_layers"),
       .d_mlp = o.at("d_mlp"),
       .tied_head = o.at("tied_head"),
       .positions = o.at("positions") == "rotary" ? PositionKind::rotary : PositionKind::learned,
       .dtype = dtype});
  TorchGenerator generator(c.at("seed"));
  const std::vector<GptParameter> parameters = model.parameters();
  model.update_all([&](std::size_t index, const std::string& name, const MutableTensorView& p) {
    const bool gain =
        parameters[index].kind == ParameterKind::norm && name.find("bias") == std::string::npos;
    Tensor drawn = generator.randn(p.shape(), DType::f64);
    auto* values = drawn.mutable_data_as<double>();
    for (dim_t i = 0; i < drawn.numel(); ++i) values[i] = (gain ? 1.0 : 0.0) + 0.3 * values[i];
    p.copy_from(drawn);
  });
  return model;
}

inline GoldenEffects golden_effects(const std::string& name, DType dtype = DType::f64) {
  const nlohmann::json golden = read_golden("effects.json");
  for (const auto& c : golden.at("cases")) {
    if (c.at("case") != name) continue;
    TorchGenerator generator(c.at("seed").get<std::uint64_t>() + 1);
    std::vector<std::int64_t> ids;
    for (int i = 0; i < c.at("tokens"); ++i) {
      ids.push_back(generator.randint(0, c.at("options").at("vocab_size")));
    }
    return {c, golden_model(c, dtype), ids};
  }
  throw std::runtime_error("effects.json has no case " + name);
}

// Tests that every model of the file goes through.
class GoldenEffectsTest : public ::testing::TestWithParam<const char*> {
 protected:
  GoldenEffects of(DType dtype = DType::f64) const { return golden_effects(GetParam(), dtype); }
};

}  // namespace cephalo::testing
