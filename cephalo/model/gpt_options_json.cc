#include "cephalo/model/gpt_options_json.h"

#include <string_view>

#include "cephalo/core/fail.h"

namespace cephalo {
namespace {

struct FieldWriter {
  template <typename Value>
  void operator()(const OptionField& field, const Value& value) const {
    if constexpr (HasWords<Value>) {
      json[field.name] = name(value);
    } else {
      json[field.name] = value;
    }
  }
  void operator()(const OptionField&, const Rotary& rotary) const {
    json["rotary_interleaved"] = rotary.interleaved;
    json["rotary_base"] = rotary.base;
  }
  void operator()(const OptionField& field, const std::optional<std::uint64_t>& seed) const {
    json[field.name] = seed ? Json(*seed) : nullptr;
  }
  void operator()(const OptionField& field, DType dtype) const { json[field.name] = name(dtype); }

  Json& json;
};

class FieldReader {
 public:
  FieldReader(const Json& json, const JsonMembers& members) : json_(json), members_(members) {}

  template <typename Value>
  void operator()(const OptionField& field, Value& value) const {
    const bool newer = std::string_view(field.name) == "num_kv_heads";  // not in older checkpoints
    if (newer && !json_.contains(field.name)) return;
    if constexpr (HasWords<Value>) {
      value = static_cast<Value>(read_word(field.name, words_of(value)));
    } else {
      members_(field.name, value);
    }
  }
  void operator()(const OptionField&, Rotary& rotary) const {
    members_("rotary_interleaved", rotary.interleaved);
    members_("rotary_base", rotary.base);
  }
  void operator()(const OptionField& field, std::optional<std::uint64_t>& seed) const {
    members_(field.name, seed.emplace());
  }
  void operator()(const OptionField& field, DType& dtype) const {
    constexpr DType kTypes[] = {DType::f32, DType::f64};
    const char* const words[] = {name(kTypes[0]), name(kTypes[1])};
    dtype = kTypes[read_word(field.name, words)];
  }

 private:
  // Which of the words it is.
  std::size_t read_word(const char* key, std::span<const char* const> words) const {
    std::string word;
    members_(key, word);
    for (std::size_t place = 0; place < words.size(); ++place) {
      if (words[place] == word) return place;
    }
    members_.refuse(key, format_text("one of {}", joined(words, ", ")));
  }

  const Json& json_;
  const JsonMembers& members_;
};

}  // namespace

Json to_json(const GptOptions& options) {
  Json json;
  for_fields(options, FieldWriter{json});
  return json;
}

GptOptions gpt_options_from_json(const Json& json, const std::string& name, std::int64_t most) {
  const JsonMembers members(json, name, most);
  GptOptions options;
  for_fields(options, FieldReader(json, members));
  return options;
}

}  // namespace cephalo
