#include "cephalo/io/config_keys.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "cephalo/core/fail.h"
#include "cephalo/core/printable.h"
#include "cephalo/io/file.h"
#include "cephalo/io/json.h"

namespace cephalo {
namespace {

using Values = std::map<std::string, Json>;

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

constexpr ConfigKey kGptKeys[] = {{"vocab_size", {"vocab_size"}},
                                  {"context_length", {"n_positions", "context_length", "n_ctx"}},
                                  {"d_model", {"n_embd", "emb_dim"}},
                                  {"num_heads", {"n_head", "n_heads"}},
                                  {"num_layers", {"n_layer", "n_layers"}},
                                  {"d_mlp", {"n_inner"}},
                                  {"activation", {"activation_function"}},
                                  {"norm_epsilon", {"layer_norm_epsilon"}},
                                  {"dropout", {"resid_pdrop", "drop_rate"}},
                                  {"dropout of embeddings", {"embd_pdrop", "drop_rate"}},
                                  {"dropout of attention", {"attn_pdrop", "drop_rate"}},
                                  {"tied_head", {"tie_word_embeddings"}},
                                  {"dtype", {"torch_dtype"}},
                                  {"bos_token_id", {"bos_token_id"}},
                                  {"eos_token_id", {"eos_token_id"}},
                                  {"add_bos_token", {"add_bos_token"}},
                                  {"trained_context_length", {"trained_context_length"}, true},
                                  {"num_kv_heads", {"num_kv_heads"}, true},
                                  {"qkv_bias", {"qkv_bias"}, true},
                                  {"positions", {"positions"}, true},
                                  {"rotary_base", {"rotary_base"}, true},
                                  {"rotary_interleaved", {"rotary_interleaved"}, true}};

ConfigKey::Names names_of(const char* option) {
  for (const ConfigKey& key : kGptKeys) {
    if (std::string_view(key.option) == option) return key.names;
  }
  return {option};
}

bool sets_an_option(const std::string& name) {
  return std::any_of(std::begin(kGptKeys), std::end(kGptKeys), [&](const ConfigKey& key) {
    return std::any_of(key.names.begin(), key.names.end(),
                       [&](const char* known) { return known != nullptr && name == known; });
  });
}

// The keys of the outermost object, event by event. What lies inside a key's own object or list is
// passed over; a number no double holds is found with its key.
class KeyReader : public JsonEvents {
 public:
  KeyReader(const std::string& path, Values& values) : path_(path), values_(values) {}

  bool key(std::string& text) override {
    if (depth_ != 1) return true;
    require(!values_.contains(text), "{}: {}: appears twice", path_, shown(text));
    key_ = text;
    return true;
  }
  bool start_object() override {
    if (depth_ == 1) keep(Json::object());
    ++depth_;
    return true;
  }
  bool start_array() override {
    require(depth_ > 0, "{}: is not a JSON object", path_);
    if (depth_ == 1) keep(Json::array());
    ++depth_;
    return true;
  }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }
  bool null() override { return keep(nullptr); }
  bool boolean(bool value) override { return keep(value); }
  bool number_integer(std::int64_t value) override { return keep(value); }
  bool number_unsigned(std::uint64_t value) override { return keep(value); }
  bool number_float(double value, const std::string&) override { return keep(value); }
  bool string(std::string& text) override { return keep(text); }

  void number_too_large(const std::string& text) override {
    fail(Error::Kind::value, "{}: {}: {} is out of range", path_, shown(key_), shown(text));
  }

 private:
  bool keep(Json value) {
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

}  // namespace

std::span<const ConfigKey> gpt_config_keys() {
  return kGptKeys;
}

ConfigKeys::ConfigKeys(const std::string& path, const std::string& json)
    : path_(path), values_(std::make_unique<Values>()) {
  KeyReader reader(path_, *values_);
  read_json(json, path_, kLimits, reader);
}

ConfigKeys::ConfigKeys(ConfigKeys&&) noexcept = default;
ConfigKeys& ConfigKeys::operator=(ConfigKeys&&) noexcept = default;
ConfigKeys::~ConfigKeys() = default;

ConfigKeys ConfigKeys::of_file(const std::string& path) {
  const InputFile file(path);
  require(file.size() <= kLimits.bytes, "{}: {} bytes are over the limit {}", path, file.size(),
          kLimits.bytes);
  std::string json(static_cast<std::size_t>(file.size()), '\0');
  file.read(0, json.data(), file.size());
  return {path, json};
}

const Json* ConfigKeys::find(const char* option) {
  const ConfigKey::Names names = names_of(option);
  for (const char* name : names) {
    if (name == nullptr) break;
    known_.insert(name);
    const auto found = values_->find(name);
    if (found == values_->end() || found->second.is_null()) continue;
    last_ = name;
    return &found->second;
  }
  last_ = names.front();
  return nullptr;
}

void ConfigKeys::check(bool holds, const Json& value, const std::string& rule) const {
  require(holds, "{}: {}: {} must be {}", path_, last_, shown_json(value), rule);
}

std::optional<dim_t> ConfigKeys::whole(const char* option, dim_t least) {
  const Json* value = find(option);
  if (value == nullptr) return std::nullopt;
  const bool whole = value->is_whole() &&
                     (value->is_unsigned() ? value->as_uint64() <= std::uint64_t{kLargestNumber}
                                           : value->as_int64() >= 0);
  check(whole && value->as_int64() >= least, *value,
        format_text("a whole number from {} to {}", least, kLargestNumber));
  return value->as_int64();
}

dim_t ConfigKeys::needed(const char* option) {
  const std::optional<dim_t> value = whole(option, 1);
  require(value.has_value(), "{}: {}: is missing", path_, last_);
  return *value;
}

std::optional<double> ConfigKeys::real(const char* option) {
  const Json* value = find(option);
  if (value == nullptr) return std::nullopt;
  check(value->is_number(), *value, "a number");
  return value->as_double();
}

std::optional<double> ConfigKeys::positive(const char* option) {
  const std::optional<double> value = real(option);
  if (value) check(*value > 0.0 && std::isfinite(*value), Json(*value), "> 0");
  return value;
}

std::optional<double> ConfigKeys::probability(const char* option) {
  const std::optional<double> value = real(option);
  if (value) check(*value >= 0.0 && *value < 1.0, Json(*value), "in [0, 1)");
  return value;
}

std::optional<bool> ConfigKeys::boolean(const char* option) {
  const Json* value = find(option);
  if (value == nullptr) return std::nullopt;
  check(value->is_boolean(), *value, "true or false");
  return value->as_bool();
}

std::optional<std::size_t> ConfigKeys::word(const char* option,
                                            std::span<const char* const> words) {
  const Json* value = find(option);
  if (value == nullptr) return std::nullopt;
  const auto found = std::find_if(words.begin(), words.end(), [&](const char* word) {
    return value->is_string() && value->as_string() == word;
  });
  check(found != words.end(), *value, format_text("one of {}", joined(words, ", ")));
  return static_cast<std::size_t>(found - words.begin());
}

void ConfigKeys::only(const char* name, bool wanted) {
  const std::optional<bool> value = boolean(name);
  if (!value) return;
  check(*value == wanted, Json(*value), format_text("{}, the only supported value", wanted));
}

void ConfigKeys::refuse_unknown() const {
  for (const auto& [key, value] : *values_) {
    if (known_.contains(key) || sets_an_option(key)) continue;
    require(std::find(kIgnored.begin(), kIgnored.end(), key) != kIgnored.end(),
            "{}: {}: unknown key, with the value {} (allow_extra = true ignores it)", path_,
            shown(key), shown_json(value));
  }
}

}  // namespace cephalo
