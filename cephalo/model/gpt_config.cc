#include "cephalo/model/gpt_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "cephalo/core/fail.h"
#include "cephalo/core/printable.h"
#include "cephalo/io/file.h"
#include "cephalo/io/json.h"

namespace cephalo {
namespace {

constexpr dim_t kLargestNumber = (dim_t{1} << 31) - 1;
constexpr JsonLimits kLimits = {.bytes = 1 << 20, .values = 100'000, .string_bytes = 1 << 20};

// Keys of transformers' configurations that say nothing about the arithmetic of a GPT-2.
constexpr std::array<std::string_view, 66> kIgnored = {"_attn_implementation",
                                                       "_name_or_path",
                                                       "_num_labels",
                                                       "architectures",
                                                       "attn_implementation",
                                                       "bad_words_ids",
                                                       "begin_suppress_tokens",
                                                       "chunk_size_feed_forward",
                                                       "decoder_start_token_id",
                                                       "diversity_penalty",
                                                       "do_sample",
                                                       "dtype",
                                                       "early_stopping",
                                                       "encoder_no_repeat_ngram_size",
                                                       "exponential_decay_length_penalty",
                                                       "finetuning_task",
                                                       "forced_bos_token_id",
                                                       "forced_eos_token_id",
                                                       "gradient_checkpointing",
                                                       "id2label",
                                                       "initializer_range",
                                                       "is_decoder",
                                                       "label2id",
                                                       "length_penalty",
                                                       "max_length",
                                                       "min_length",
                                                       "n_ctx",
                                                       "no_repeat_ngram_size",
                                                       "num_beam_groups",
                                                       "num_beams",
                                                       "num_labels",
                                                       "num_return_sequences",
                                                       "output_attentions",
                                                       "output_hidden_states",
                                                       "output_past",
                                                       "output_scores",
                                                       "pad_token_id",
                                                       "prefix",
                                                       "problem_type",
                                                       "pruned_heads",
                                                       "remove_invalid_values",
                                                       "reorder_and_upcast_attn",
                                                       "repetition_penalty",
                                                       "return_dict",
                                                       "return_dict_in_generate",
                                                       "sep_token_id",
                                                       "summary_activation",
                                                       "summary_first_dropout",
                                                       "summary_proj_to_labels",
                                                       "summary_type",
                                                       "summary_use_proj",
                                                       "suppress_tokens",
                                                       "task_specific_params",
                                                       "temperature",
                                                       "tf_legacy_loss",
                                                       "tie_encoder_decoder",
                                                       "tokenizer_class",
                                                       "top_k",
                                                       "top_p",
                                                       "torch_dtype",
                                                       "torchscript",
                                                       "transformers_version",
                                                       "typical_p",
                                                       "use_bfloat16",
                                                       "use_cache",
                                                       "vocab_file"};

// The keys of the outermost object, event by event. What lies inside a key's own object or list is
// passed over; a number no double holds is found with its key.
class ConfigReader : public JsonEvents {
 public:
  using Values = std::map<std::string, nlohmann::json>;
  ConfigReader(const std::string& path, Values& values) : path_(path), values_(values) {}

  bool key(string_t& text) override {
    if (depth_ != 1) return true;
    require(!values_.contains(text), "{}: {}: appears twice", path_, shown(text));
    key_ = text;
    return true;
  }
  bool start_object(std::size_t) override {
    if (depth_ == 1) keep(nlohmann::json::object());
    ++depth_;
    return true;
  }
  bool start_array(std::size_t) override {
    require(depth_ > 0, "{}: is not a JSON object", path_);
    if (depth_ == 1) keep(nlohmann::json::array());
    ++depth_;
    return true;
  }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }
  bool null() override { return keep(nullptr); }
  bool boolean(bool value) override { return keep(value); }
  bool number_integer(number_integer_t value) override { return keep(value); }
  bool number_unsigned(number_unsigned_t value) override { return keep(value); }
  bool number_float(number_float_t value, const string_t&) override { return keep(value); }
  bool string(string_t& text) override { return keep(text); }

  bool parse_error(std::size_t position, const std::string& token,
                   const nlohmann::detail::exception& error) override {
    constexpr int kOutOfRange = 406;
    if (error.id == kOutOfRange) {
      fail(Error::Kind::value, "{}: {}: {} is larger than any number", path_, shown(key_),
           shown(token));
    }
    return JsonEvents::parse_error(position, token, error);
  }

 private:
  bool keep(nlohmann::json value) {
    require(depth_ > 0, "{}: is not a JSON object", path_);
    if (depth_ == 1) values_[key_] = std::move(value);
    return true;
  }
  bool end() {
    --depth_;
    return true;
  }

  const std::string& path_;
  Values& values_;
  std::size_t depth_ = 0;
  std::string key_;
};

// Looks keys up by either of their names, and remembers which were.
class Keys {
 public:
  Keys(const std::string& path, const std::string& json) : path_(path) {
    ConfigReader reader(path, values_);
    read_json(json, path, kLimits, reader);
  }

  // null: the key is absent, or there and null
  const nlohmann::json* find(std::initializer_list<const char*> names) {
    for (const char* name : names) {
      known_.insert(name);
      const auto found = values_.find(name);
      if (found == values_.end() || found->second.is_null()) continue;
      last_ = name;
      return &found->second;
    }
    last_ = *names.begin();
    return nullptr;
  }

  template <typename... Args>
  void check(bool holds, const nlohmann::json& value, fmt::format_string<Args...> rule,
             Args&&... args) const {
    require(holds, "{}: {}: {} must be {}", path_, last_, shown_json(value),
            fmt::format(rule, std::forward<Args>(args)...));
  }

  std::optional<dim_t> whole(std::initializer_list<const char*> names, dim_t least) {
    const nlohmann::json* value = find(names);
    if (value == nullptr) return std::nullopt;
    const bool whole =
        value->is_number_integer() &&
        (value->is_number_unsigned() ? value->get<std::uint64_t>() <= std::uint64_t{kLargestNumber}
                                     : value->get<std::int64_t>() >= 0);
    check(whole && value->get<dim_t>() >= least, *value, "a whole number from {} to {}", least,
          kLargestNumber);
    return value->get<dim_t>();
  }

  dim_t needed(std::initializer_list<const char*> names) {
    const std::optional<dim_t> value = whole(names, 1);
    require(value.has_value(), "{}: {}: is missing", path_, last_);
    return *value;
  }

  std::optional<double> real(std::initializer_list<const char*> names) {
    const nlohmann::json* value = find(names);
    if (value == nullptr) return std::nullopt;
    check(value->is_number(), *value, "a number");
    return value->get<double>();
  }

  std::optional<bool> boolean(const char* name) {
    const nlohmann::json* value = find({name});
    if (value == nullptr) return std::nullopt;
    check(value->is_boolean(), *value, "true or false");
    return value->get<bool>();
  }

  std::optional<double> probability(std::initializer_list<const char*> names) {
    const std::optional<double> value = real(names);
    if (value) {
      check(*value >= 0.0 && *value < 1.0, nlohmann::json(*value), "in [0, 1)");
    }
    return value;
  }

  template <typename T>
  std::optional<T> word(const char* name, std::initializer_list<std::pair<const char*, T>> words) {
    const nlohmann::json* value = find({name});
    if (value == nullptr) return std::nullopt;
    std::string known;
    for (const auto& [text, meaning] : words) {
      if (value->is_string() && value->get_ref<const std::string&>() == text) return meaning;
      known += known.empty() ? text : fmt::format(", {}", text);
    }
    check(false, *value, "one of {}", known);
    return std::nullopt;
  }

  // What this arithmetic is the only one for.
  void only(const char* name, bool wanted) {
    const std::optional<bool> value = boolean(name);
    if (value) check(*value == wanted, nlohmann::json(*value), "{}: the only one there is", wanted);
  }

  // The first key that nobody asked for and that is not on the list.
  void refuse_unknown() const {
    for (const auto& [key, value] : values_) {
      if (known_.contains(key)) continue;
      require(std::find(kIgnored.begin(), kIgnored.end(), key) != kIgnored.end(),
              "{}: {}: {} is for a key that is not known (--allow-extra ignores it)", path_,
              shown(key), shown_json(value));
    }
  }

  const std::string& path() const { return path_; }

 private:
  const std::string& path_;
  ConfigReader::Values values_;
  std::set<std::string> known_;
  std::string last_;  // the key that was looked up
};

void read_dropout(Keys& keys, const ConfigOptions& options, GptOptions& o) {
  const std::optional<double> rates[] = {keys.probability({"resid_pdrop", "drop_rate"}),
                                         keys.probability({"embd_pdrop"}),
                                         keys.probability({"attn_pdrop"})};
  o.dropout = rates[0].value_or(0.0);
  for (const std::optional<double>& rate : rates) {
    if (!rate || *rate == o.dropout || options.warnings == nullptr) continue;
    options.warnings->push_back(
        fmt::format("{}: embd_pdrop and attn_pdrop differ from resid_pdrop ({}), which is used for "
                    "all in training",
                    keys.path(), o.dropout));
    return;
  }
}

void read_model_type(Keys& keys) {
  keys.word<bool>("model_type", {{"gpt2", true}, {"cephalo", true}});
  keys.only("scale_attn_weights", true);
  keys.only("scale_attn_by_inverse_layer_idx", false);
  keys.only("add_cross_attention", false);
  keys.only("is_encoder_decoder", false);
}

}  // namespace

GptConfig parse_gpt_config(const std::string& json, const std::string& path,
                           const ConfigOptions& options) {
  Keys keys(path, json);
  GptConfig config;
  GptOptions& o = config.options;
  read_model_type(keys);
  o.vocab_size = keys.needed({"vocab_size"});
  o.context_length = keys.needed({"n_positions", "context_length", "n_ctx"});
  o.d_model = keys.needed({"n_embd", "emb_dim"});
  o.num_heads = keys.needed({"n_head", "n_heads"});
  require(o.d_model % o.num_heads == 0, "{}: n_embd ({}) must be a multiple of n_head ({})", path,
          o.d_model, o.num_heads);
  o.num_layers = keys.needed({"n_layer", "n_layers"});
  o.d_mlp = keys.whole({"n_inner"}, 1).value_or(0);
  read_dropout(keys, options, o);
  if (const auto epsilon = keys.real({"layer_norm_epsilon"})) {
    keys.check(*epsilon > 0.0 && std::isfinite(*epsilon), nlohmann::json(*epsilon), "> 0");
    o.norm_epsilon = *epsilon;
  }
  o.activation =
      keys.word<Activation>("activation_function", {{"gelu_new", Activation::gelu_tanh},
                                                    {"gelu_pytorch_tanh", Activation::gelu_tanh},
                                                    {"gelu_fast", Activation::gelu_tanh},
                                                    {"gelu", Activation::gelu_erf}})
          .value_or(Activation::gelu_tanh);
  o.qkv_bias = keys.boolean("qkv_bias").value_or(true);
  o.positions = keys.word<Positions>("positions", {{"learned", Positions::learned},
                                                   {"rotary", Positions::rotary}})
                    .value_or(Positions::learned);
  if (const auto base = keys.real({"rotary_base"})) {
    keys.check(*base > 0.0, nlohmann::json(*base), "> 0");
    o.rotary.base = *base;
  }
  o.rotary.interleaved = keys.boolean("rotary_interleaved").value_or(false);
  if (o.positions == Positions::rotary) {
    require(o.d_model / o.num_heads % 2 == 0,
            "{}: positions: rotary needs n_embd / n_head to be even, got {} / {}", path, o.d_model,
            o.num_heads);
  }
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

GptConfig read_gpt_config(const std::string& path, const ConfigOptions& options) {
  const InputFile file(path);
  require(file.size() <= kLimits.bytes, "{}: {} bytes are over the limit {}", path, file.size(),
          kLimits.bytes);
  std::string json(static_cast<std::size_t>(file.size()), '\0');
  file.read(0, json.data(), file.size());
  return parse_gpt_config(json, path, options);
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
