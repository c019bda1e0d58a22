#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cephalo/model/gpt.h"

#pragma GCC visibility push(default)
namespace cephalo {

// What config.json of a model's folder says.
struct GptConfig {
  GptOptions options;
  std::optional<dim_t> bos_token_id = {};  // the token that begins a text
  std::optional<dim_t> eos_token_id = {};  // the one that ends it
  bool add_bos_token = false;              // every text is to begin with it
  std::optional<bool> tied_head = {};      // none: the file of the parameters shows it
  // Where the model reads more tokens than it was trained on: how many these were.
  std::optional<dim_t> trained_context_length = {};
};

// json: config.json of a Hugging Face GPT-2 (n_embd n_head n_layer n_positions vocab_size …) or
// the book's names (emb_dim n_heads n_layers context_length drop_rate qkv_bias). Models of our own
// have keys more: positions ("learned", "rotary"), rotary_base, rotary_interleaved, qkv_bias,
// num_kv_heads, trained_context_length, and add_bos_token, as a tokenizer's configuration has it.
//
// Unknown keys are errors: a key we ignore might change the arithmetic.
// `allow_extra` lets unknown ones pass. `path` begins the messages, which name key, value and rule.
struct ConfigOptions {
  bool allow_extra = false;
  std::vector<std::string>* warnings = nullptr;
};
GptConfig parse_gpt_config(const std::string& json, const std::string& path,
                           const ConfigOptions& options = {});

// The same read from a file of at most 1 MiB.
GptConfig read_gpt_config(const std::string& path, const ConfigOptions& options = {});

// config.json that says this. A model that is not a GPT-2 (rotary positions, no qkv_bias, shared
// heads of keys and values) has another model_type, so that other programs refuse it instead of
// misreading it.
std::string gpt_config_json(const GptConfig& config, DType dtype);

}  // namespace cephalo
#pragma GCC visibility pop
