#include "cephalo/model/gpt_config.h"

#include <array>
#include <utility>

#include "cephalo/attention/layer/layer_config.h"
#include "cephalo/core/fail.h"
#include "cephalo/io/config_keys.h"
#include "cephalo/io/json.h"

namespace cephalo {
namespace {

void read_dropout(ConfigKeys& keys, const ConfigOptions& options, GptOptions& o) {
  const std::optional<double> rates[] = {keys.probability({"resid_pdrop", "drop_rate"}),
                                         keys.probability({"embd_pdrop"}),
                                         keys.probability({"attn_pdrop"})};
  o.dropout = rates[0].value_or(0.0);
  for (const std::optional<double>& rate : rates) {
    if (!rate || *rate == o.dropout || options.warnings == nullptr) continue;
    options.warnings->push_back(
        format_text("{}: embd_pdrop and attn_pdrop differ from resid_pdrop ({}), which is used for "
                    "all in training",
                    keys.path(), o.dropout));
    return;
  }
}

Activation read_activation(ConfigKeys& keys) {
  constexpr std::array kMeanings = {Activation::gelu_tanh, Activation::gelu_tanh,
                                    Activation::gelu_tanh, Activation::gelu_erf};
  const auto which =
      keys.word("activation_function", {"gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu"});
  return which ? kMeanings.at(*which) : Activation::gelu_tanh;
}

// Every key of a GPT's.
GptConfig read_keys(ConfigKeys& keys, const ConfigOptions& options) {
  GptConfig config;
  GptOptions& o = config.options;
  o.vocab_size = keys.needed({"vocab_size"});
  const LayerConfig attention = read_layer_config(keys);
  o.context_length = attention.context_length;
  o.d_model = attention.d_model;
  o.num_heads = attention.num_heads;
  o.positions = attention.rotary ? Positions::rotary : Positions::learned;
  o.rotary = attention.rotary.value_or(Rotary{});
  o.num_layers = keys.needed({"n_layer", "n_layers"});
  o.d_mlp = keys.whole({"n_inner"}, 1).value_or(0);
  read_dropout(keys, options, o);
  o.norm_epsilon = keys.positive("layer_norm_epsilon").value_or(o.norm_epsilon);
  o.activation = read_activation(keys);
  o.qkv_bias = keys.boolean("qkv_bias").value_or(true);
  config.tied_head = keys.boolean("tie_word_embeddings");
  o.tied_head = config.tied_head.value_or(true);
  for (auto& [key, id] : {std::pair{"bos_token_id", &config.bos_token_id},
                          std::pair{"eos_token_id", &config.eos_token_id}}) {
    *id = keys.whole({key}, 0);
    // Sizes of the tokenizer and of the model are set in different places; GPT-2's default ids
    // stand in configurations of smaller vocabularies.
    if (*id && **id >= o.vocab_size) id->reset();
  }
  config.add_bos_token = keys.boolean("add_bos_token").value_or(false) && config.bos_token_id;
  if (!options.allow_extra) keys.refuse_unknown();
  return config;
}

}  // namespace

GptConfig parse_gpt_config(const std::string& json, const std::string& path,
                           const ConfigOptions& options) {
  ConfigKeys keys(path, json);
  return read_keys(keys, options);
}

GptConfig read_gpt_config(const std::string& path, const ConfigOptions& options) {
  ConfigKeys keys = ConfigKeys::of_file(path);
  return read_keys(keys, options);
}

std::string gpt_config_json(const GptConfig& config, DType dtype) {
  const GptOptions& o = config.options;
  const bool is_gpt2 = o.positions == Positions::learned && o.qkv_bias;
  nlohmann::ordered_json json = {
      {"model_type", is_gpt2 ? "gpt2" : "cephalo"},
      {"architectures", {is_gpt2 ? "GPT2LMHeadModel" : "CephaloGpt"}},
      {"vocab_size", o.vocab_size},
      {"n_positions", o.context_length},
      {"n_embd", o.d_model},
      {"n_head", o.num_heads},
      {"n_layer", o.num_layers},
      {"n_inner", o.d_mlp == 0 ? 4 * o.d_model : o.d_mlp},
      {"activation_function", o.activation == Activation::gelu_erf ? "gelu" : "gelu_new"},
      {"layer_norm_epsilon", o.norm_epsilon},
      {"resid_pdrop", o.dropout},
      {"embd_pdrop", o.dropout},
      {"attn_pdrop", o.dropout},
      {"tie_word_embeddings", o.tied_head},
      {"torch_dtype", dtype == DType::bf16  ? "bfloat16"
                      : dtype == DType::f16 ? "float16"
                                            : name(dtype)}};
  // Without a word about them transformers takes GPT-2's own.
  json["bos_token_id"] = config.bos_token_id ? nlohmann::json(*config.bos_token_id) : nullptr;
  json["eos_token_id"] = config.eos_token_id ? nlohmann::json(*config.eos_token_id) : nullptr;
  if (config.add_bos_token) json["add_bos_token"] = true;
  if (!is_gpt2) {
    json["qkv_bias"] = o.qkv_bias;
    json["positions"] = o.positions == Positions::rotary ? "rotary" : "learned";
    if (o.positions == Positions::rotary) {
      json["rotary_base"] = o.rotary.base;
      json["rotary_interleaved"] = o.rotary.interleaved;
    }
  }
  return json.dump(2) + "\n";
}

}  // namespace cephalo
