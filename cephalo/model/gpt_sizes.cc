// How large a GPT is: presets, parameters, memory.
#include <algorithm>
#include <array>

#include "cephalo/core/fail.h"
#include "cephalo/model/gpt_layers.h"
#include "cephalo/model/gpt_pass.h"

namespace cephalo {
namespace {

struct Preset {
  const char* name;
  const char* size;
  dim_t d_model, num_heads, num_layers;
};
constexpr std::array kPresets = {
    Preset{"gpt2", "124M", 768, 12, 12}, Preset{"gpt2-medium", "355M", 1024, 16, 24},
    Preset{"gpt2-large", "774M", 1280, 20, 36}, Preset{"gpt2-xl", "1558M", 1600, 25, 48}};

dim_t sum_of(std::initializer_list<dim_t> terms) {
  dim_t sum = 0;
  for (const dim_t term : terms) sum = checked_add(sum, term);
  return sum;
}

}  // namespace

const std::vector<std::string>& gpt_preset_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const Preset& preset : kPresets) list.emplace_back(preset.name);
    return list;
  }();
  return names;
}

GptOptions gpt_preset(const std::string& name) {
  for (const Preset& preset : kPresets) {
    if (name != preset.name && name != preset.size) continue;
    GptOptions options;
    options.vocab_size = 50257;
    options.context_length = 1024;
    options.d_model = preset.d_model;
    options.num_heads = preset.num_heads;
    options.num_layers = preset.num_layers;
    options.dropout = 0.1;
    return options;
  }
  fail(Error::Kind::value, "gpt_preset: '{}' is not one of {}", name,
       fmt::join(gpt_preset_names(), ", "));
}

dim_t parameter_count(const GptOptions& options) {
  const GptOptions o = checked_options(options, "parameter_count");
  const dim_t d = o.d_model;
  const dim_t attention = sum_of({checked_mul(checked_mul(4, d), d), o.qkv_bias ? 3 * d : 0, d});
  const dim_t mlp = sum_of({checked_mul(checked_mul(2, d), o.d_mlp), o.d_mlp, d});
  const dim_t norms = checked_mul(4, d);
  const dim_t embedding = checked_mul(o.vocab_size, d);
  return sum_of({embedding,
                 o.positions == Positions::learned ? checked_mul(o.context_length, d) : 0,
                 checked_mul(o.num_layers, sum_of({attention, mlp, norms})), 2 * d,
                 o.tied_head ? 0 : embedding});
}

GptMemory memory_bytes(const GptOptions& options, dim_t batch, dim_t tokens) {
  const GptOptions o = checked_options(options, "memory_bytes");
  require(batch > 0 && tokens > 0 && tokens <= o.context_length,
          "memory_bytes: batch ({}) and tokens ({}) must be > 0, and tokens at most "
          "context_length ({})",
          batch, tokens, o.context_length);
  const auto item = static_cast<dim_t>(item_size(o.dtype));
  GptMemory memory;
  memory.parameters = checked_mul(parameter_count(o), item);
  memory.gradients = memory.parameters;
  memory.optimiser = checked_mul(2, memory.parameters);
  memory.pass = train_pass_bytes(o, batch, tokens);
  return memory;
}

}  // namespace cephalo
