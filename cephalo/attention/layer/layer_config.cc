#include "cephalo/attention/layer/layer_config.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

#include "cephalo/core/fail.h"

namespace cephalo {
namespace {

// Keys about the rest of a GPT, which a layer alone does not look up; see gpt_config.cc.
constexpr std::array<std::string_view, 13> kRestOfModel = {
    "vocab_size",   "n_layer",    "n_layers",           "n_inner",
    "resid_pdrop",  "embd_pdrop", "layer_norm_epsilon", "activation_function",
    "bos_token_id", "qkv_bias",   "eos_token_id",       "tie_word_embeddings",
    "add_bos_token"};

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
  const std::optional<std::size_t> positions = keys.word("positions", {"learned", "rotary"});
  Rotary rotary;
  rotary.base = keys.positive("rotary_base").value_or(rotary.base);
  rotary.interleaved = keys.boolean("rotary_interleaved").value_or(rotary.interleaved);
  return positions.value_or(0) == 1 ? std::optional(rotary) : std::nullopt;
}

}  // namespace

LayerConfig read_layer_config(ConfigKeys& keys) {
  keys.word("model_type", {"gpt2", "cephalo"});
  keys.only("scale_attn_weights", true);
  keys.only("scale_attn_by_inverse_layer_idx", false);
  keys.only("add_cross_attention", false);
  keys.only("is_encoder_decoder", false);
  LayerConfig config;
  config.context_length = keys.needed({"n_positions", "context_length", "n_ctx"});
  config.d_model = keys.needed({"n_embd", "emb_dim"});
  config.num_heads = keys.needed({"n_head", "n_heads"});
  require(config.d_model % config.num_heads == 0,
          "{}: n_embd ({}) must be a multiple of n_head ({})", keys.path(), config.d_model,
          config.num_heads);
  config.dropout = keys.probability({"attn_pdrop", "drop_rate"});
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
  if (!allow_extra) keys.refuse_unknown(kRestOfModel);
  return config;
}

}  // namespace cephalo
