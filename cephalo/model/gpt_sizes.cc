// How large a GPT is: presets, parameters, memory.
#include <algorithm>

#include "cephalo/core/fail.h"
#include "cephalo/model/gpt_layers.h"
#include "cephalo/model/gpt_pass.h"
#include "cephalo/model/presets.h"

namespace cephalo {
namespace {

dim_t sum_of(std::initializer_list<dim_t> terms) {
  dim_t sum = 0;
  for (const dim_t term : terms) sum = checked_add(sum, term);
  return sum;
}

}  // namespace

const std::vector<std::string>& gpt_preset_names() {
  return preset_names();
}

GptOptions gpt_preset(const std::string& name) {
  const ModelSizes& sizes = find_model_sizes(name, "gpt_preset");
  GptOptions options;
  options.vocab_size = 50257;
  options.context_length = sizes.context_length;
  options.d_model = sizes.d_model;
  options.num_heads = sizes.num_heads;
  options.num_layers = sizes.num_layers;
  options.dropout = 0.1;
  return options;
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
