#include "cli/model_text.h"

#include "cephalo/core/format.h"

namespace cephalo::cli {

std::string layers_and_heads(const GptOptions& model) {
  std::string text = format_text("{} layers x {} heads", model.num_layers, model.num_heads);
  const bool shared = model.num_kv_heads > 0 && model.num_kv_heads < model.num_heads;
  if (shared) text += format_text(" ({} of keys and values)", model.num_kv_heads);
  return text;
}

}  // namespace cephalo::cli
