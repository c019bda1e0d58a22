#include "cephalo/model/families.h"

#include <algorithm>

namespace cephalo {
namespace {

bool is_gpt2(const GptOptions& o) {
  return o.positions == PositionKind::learned && o.qkv_bias && o.num_kv_heads == o.num_heads;
}

bool is_any(const GptOptions&) {
  return true;
}

// Models that are not a GPT-2 have another model_type, so that other programs refuse them instead
// of misreading them. The last family takes what no other can say.
constexpr Family kFamilies[] = {{.model_type = "gpt2",
                                 .architecture = "GPT2LMHeadModel",
                                 .can_say = is_gpt2,
                                 .keys = gpt_config_keys,
                                 .writes_ours = false,
                                 .names = &kGpt2Names},
                                {.model_type = "cephalo",
                                 .architecture = "CephaloGpt",
                                 .can_say = is_any,
                                 .keys = gpt_config_keys,
                                 .writes_ours = true,
                                 .names = &kGpt2Names}};

}  // namespace

std::span<const Family> families() {
  return kFamilies;
}

const Family& family_of(const GptOptions& checked) {
  return *std::find_if(std::begin(kFamilies), std::end(kFamilies),
                       [&](const Family& family) { return family.can_say(checked); });
}

}  // namespace cephalo
