#include "cephalo/model/presets.h"

#include <algorithm>
#include <array>

#include "cephalo/core/fail.h"

namespace cephalo {
namespace {

constexpr std::array kModels = {ModelSizes{"gpt2-small", "gpt2", "124M", 12, 768, 12, 1024},
                                ModelSizes{"gpt2-medium", "", "355M", 24, 1024, 16, 1024},
                                ModelSizes{"gpt2-large", "", "774M", 36, 1280, 20, 1024},
                                ModelSizes{"gpt2-xl", "", "1558M", 48, 1600, 25, 1024},
                                ModelSizes{"gpt3-small", "", "125M", 12, 768, 12, 2048},
                                ModelSizes{"gpt3-medium", "", "350M", 24, 1024, 16, 2048},
                                ModelSizes{"gpt3-large", "", "760M", 24, 1536, 16, 2048},
                                ModelSizes{"gpt3-xl", "", "1.3B", 24, 2048, 16, 2048},
                                ModelSizes{"gpt3-2.7b", "", "2.7B", 32, 2560, 32, 2048},
                                ModelSizes{"gpt3-6.7b", "", "6.7B", 32, 4096, 32, 2048},
                                ModelSizes{"gpt3-13b", "", "13B", 40, 5120, 40, 2048},
                                ModelSizes{"gpt3", "gpt3-175b", "175B", 96, 12288, 96, 2048}};

}  // namespace

std::span<const ModelSizes> model_sizes() {
  return kModels;
}

const ModelSizes& find_model_sizes(const std::string& name, const char* function) {
  const auto* found = std::find_if(kModels.begin(), kModels.end(), [&](const ModelSizes& m) {
    return !name.empty() && (name == m.name || name == m.other_name || name == m.parameters);
  });
  require(found != kModels.end(), "{}: unknown name {}; known are {}", function, name,
          joined(preset_names(), ", "));
  return *found;
}

MultiHeadAttentionOptions preset(const std::string& name) {
  const ModelSizes& sizes = find_model_sizes(name, "preset");
  return {.d_in = sizes.d_model,
          .d_out = sizes.d_model,
          .context_length = sizes.context_length,
          .num_heads = sizes.num_heads};
}

const std::vector<std::string>& preset_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const ModelSizes& sizes : kModels) list.emplace_back(sizes.name);
    return list;
  }();
  return names;
}

}  // namespace cephalo
