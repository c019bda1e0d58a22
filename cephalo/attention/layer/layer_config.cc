#include "cephalo/attention/layer/layer_config.h"

#include <filesystem>
#include <string_view>

#include "cephalo/core/fail.h"

namespace cephalo {
namespace {

// Is `name` "<before>N<after>", alone or behind a dot?
bool ends_in_numbered(std::string_view name, std::string_view before, std::string_view after) {
  if (!name.ends_with(after)) return false;
  name.remove_suffix(after.size());
  const std::size_t last = name.find_last_not_of("0123456789");
  if (last == std::string_view::npos || last + 1 == name.size()) return false;
  name = name.substr(0, last + 1);
  if (!name.ends_with(before)) return false;
  name.remove_suffix(before.size());
  return name.empty() || name.ends_with('.');
}

bool names_a_layer_of_a_gpt(std::string_view prefix) {
  return ends_in_numbered(prefix, "h.", ".") || ends_in_numbered(prefix, "trf_blocks.", ".att.");
}

std::optional<Rotary> read_rotary(ConfigKeys& keys) {
  static constexpr const char* kKinds[] = {"learned", "rotary"};
  const std::optional<std::size_t> positions = keys.word("positions", kKinds);
  Rotary rotary;
  rotary.base = keys.positive("rotary_base").value_or(rotary.base);
  rotary.interleaved = keys.boolean("rotary_interleaved").value_or(rotary.interleaved);
  return positions.value_or(0) == 1 ? std::optional(rotary) : std::nullopt;
}

}  // namespace

void refuse_other_models(ConfigKeys& keys) {
  static constexpr const char* kTypes[] = {"gpt2", "cephalo"};
  keys.word("model_type", kTypes);
  keys.only("scale_attn_weights", true);
  keys.only("scale_attn_by_inverse_layer_idx", false);
  keys.only("add_cross_attention", false);
  keys.only("is_encoder_decoder", false);
}

LayerConfig read_layer_config(ConfigKeys& keys) {
  refuse_other_models(keys);
  LayerConfig config;
  config.context_length = keys.needed("context_length");
  config.d_model = keys.needed("d_model");
  config.num_heads = keys.needed("num_heads");
  require(config.d_model % config.num_heads == 0,
          "{}: n_embd ({}) must be a multiple of n_head ({})", keys.path(), config.d_model,
          config.num_heads);
  config.num_kv_heads = keys.whole("num_kv_heads", 1).value_or(config.num_heads);
  require(config.num_heads % config.num_kv_heads == 0,
          "{}: n_head ({}) must be a multiple of num_kv_heads ({})", keys.path(), config.num_heads,
          config.num_kv_heads);
  config.dropout = keys.probability("dropout of attention");
  config.rotary = read_rotary(keys);
  require(!config.rotary || config.d_model / config.num_heads % 2 == 0,
          "{}: positions: rotary needs n_embd / n_head to be even, got {} / {}", keys.path(),
          config.d_model, config.num_heads);
  return config;
}

std::optional<LayerConfig> layer_config_beside(const std::string& path, const std::string& prefix,
                                               bool allow_extra) {
  if (!names_a_layer_of_a_gpt(prefix)) return std::nullopt;
  const std::filesystem::path beside = std::filesystem::path(path).parent_path() / "config.json";
  std::error_code ignored;
  if (!std::filesystem::exists(beside, ignored)) return std::nullopt;
  ConfigKeys keys = ConfigKeys::of_file(beside.string());
  const LayerConfig config = read_layer_config(keys);
  if (!allow_extra) keys.refuse_unknown();
  return config;
}

}  // namespace cephalo
