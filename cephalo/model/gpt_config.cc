#include "cephalo/model/gpt_config.h"

#include <array>
#include <string_view>
#include <utility>

#include "cephalo/attention/layer/layer_config.h"
#include "cephalo/core/fail.h"
#include "cephalo/io/config_keys.h"
#include "cephalo/io/json.h"
#include "cephalo/model/families.h"

namespace cephalo {
namespace {

// What configurations call an activation; the first word for each is the one that is written.
constexpr const char* kActivationWords[] = {"gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu"};
constexpr std::array kActivations = {Activation::gelu_tanh, Activation::gelu_tanh,
                                     Activation::gelu_tanh, Activation::gelu_erf};

const char* word_of(Activation activation) {
  for (std::size_t k = 0; k < kActivations.size(); ++k) {
    if (kActivations[k] == activation) return kActivationWords[k];
  }
  fail(Error::Kind::value, "config.json has no word for the activation {}", name(activation));
}

// Fields from keys, each by its type and range; what the keys do not say stays as it is.
struct FieldReader {
  void operator()(const OptionField& field, dim_t& value) const {
    value = field.range == OptionField::Range::size ? keys.needed(field.name)
                                                    : keys.whole(field.name, 1).value_or(value);
  }
  void operator()(const OptionField& field, double& value) const {
    value = (field.range == OptionField::Range::share ? keys.probability(field.name)
                                                      : keys.positive(field.name))
                .value_or(value);
  }
  void operator()(const OptionField& field, bool& value) const {
    value = keys.boolean(field.name).value_or(value);
  }
  void operator()(const OptionField& field, PositionKind& value) const {
    const std::optional<std::size_t> which = keys.word(field.name, words_of(value));
    if (which) value = static_cast<PositionKind>(*which);
  }
  void operator()(const OptionField& field, Activation& value) const {
    const std::optional<std::size_t> which = keys.word(field.name, kActivationWords);
    if (which) value = kActivations.at(*which);
  }
  void operator()(const OptionField&, Rotary& value) const {
    value.base = keys.positive("rotary_base").value_or(value.base);
    value.interleaved = keys.boolean("rotary_interleaved").value_or(value.interleaved);
  }
  // Not a file's to say: a model that is read has no seed, and whoever reads it chooses the type.
  void operator()(const OptionField&, std::optional<std::uint64_t>&) const {}
  void operator()(const OptionField&, DType&) const {}

  ConfigKeys& keys;
};

// A model of ours has one dropout, others have three.
void compare_dropouts(ConfigKeys& keys, const ConfigOptions& options, double dropout) {
  const std::optional<double> others[] = {keys.probability("dropout of embeddings"),
                                          keys.probability("dropout of attention")};
  for (const std::optional<double>& rate : others) {
    if (!rate || *rate == dropout || options.warnings == nullptr) continue;
    options.warnings->push_back(
        format_text("{}: embd_pdrop and attn_pdrop differ from resid_pdrop ({}), which is used for "
                    "all in training",
                    keys.path(), dropout));
    return;
  }
}

// Every key of a GPT's.
GptConfig read_keys(ConfigKeys& keys, const ConfigOptions& options) {
  GptConfig config;
  GptOptions& o = config.options;
  refuse_other_models(keys);
  for_fields(o, FieldReader{keys});
  static_cast<void>(read_layer_config(keys));  // sizes that do not fit each other
  compare_dropouts(keys, options, o.dropout);
  config.tied_head = keys.boolean("tied_head");
  for (auto& [key, id] : {std::pair{"bos_token_id", &config.bos_token_id},
                          std::pair{"eos_token_id", &config.eos_token_id}}) {
    *id = keys.whole(key, 0);
    // Sizes of the tokenizer and of the model are set in different places; GPT-2's default ids
    // stand in configurations of smaller vocabularies.
    if (*id && **id >= o.vocab_size) id->reset();
  }
  config.add_bos_token = keys.boolean("add_bos_token").value_or(false) && config.bos_token_id;
  config.trained_context_length = keys.whole("trained_context_length", 1);
  if (!options.allow_extra) keys.refuse_unknown();
  return config;
}

// Values by the options that keys are looked up with.
struct FieldWriter {
  void operator()(const OptionField& field, dim_t value) const { values[field.name] = value; }
  void operator()(const OptionField& field, double value) const { values[field.name] = value; }
  void operator()(const OptionField& field, bool value) const { values[field.name] = value; }
  void operator()(const OptionField& field, PositionKind value) const {
    values[field.name] = name(value);
  }
  void operator()(const OptionField& field, Activation value) const {
    values[field.name] = word_of(value);
  }
  void operator()(const OptionField&, const Rotary& value) const {
    values["rotary_base"] = value.base;
    values["rotary_interleaved"] = value.interleaved;
  }
  void operator()(const OptionField&, const std::optional<std::uint64_t>&) const {}
  void operator()(const OptionField&, DType) const {}  // of the file, not of the model

  Json& values;
};

// What a model's keys say; a value that goes without saying is left out.
Json values_of(const GptConfig& config, const GptOptions& o, DType dtype) {
  Json values;
  for_fields(o, FieldWriter{values});
  values["dropout of embeddings"] = o.dropout;
  values["dropout of attention"] = o.dropout;
  if (o.num_kv_heads == o.num_heads) values.erase("num_kv_heads");
  if (o.positions != PositionKind::rotary) {
    values.erase("rotary_base");
    values.erase("rotary_interleaved");
  }
  values["dtype"] = dtype == DType::bf16  ? "bfloat16"
                    : dtype == DType::f16 ? "float16"
                                          : name(dtype);
  // Without a word about them transformers takes GPT-2's own.
  values["bos_token_id"] = config.bos_token_id ? Json(*config.bos_token_id) : nullptr;
  values["eos_token_id"] = config.eos_token_id ? Json(*config.eos_token_id) : nullptr;
  if (config.add_bos_token) values["add_bos_token"] = true;
  if (config.trained_context_length) {
    values["trained_context_length"] = *config.trained_context_length;
  }
  return values;
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
  const GptOptions o = checked_options(config.options, "gpt_config_json");
  const Family& family = family_of(o);
  const Json values = values_of(config, o, dtype);
  Json json = {{"model_type", family.model_type},
               {"architectures", std::vector<std::string>{family.architecture}}};
  for (const ConfigKey& key : family.keys()) {
    if (key.ours && !family.writes_ours) continue;
    const Json* value = values.find(key.option);
    if (value != nullptr) json[key.names.front()] = *value;
  }
  return json.dump({.indent = 2}) + "\n";
}

}  // namespace cephalo
