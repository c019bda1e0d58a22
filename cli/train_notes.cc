#include "cli/train_notes.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string_view>

#include "cephalo/core/error.h"

namespace cephalo::cli {
namespace {

using Json = nlohmann::json;

// One list of fields for both ways.
template <typename Notes, typename Field>
void for_fields(Notes& notes, Field&& field) {
  field("files", notes.files);
  field("training_tokens", notes.training_tokens);
  field("repeat_share", notes.settings.repeat_share);
  field("repeat_sentences", notes.settings.repeat_sentences);
  field("save_every", notes.settings.save_every);
  field("sample_every", notes.settings.sample_every);
  field("validate_every", notes.settings.validate_every);
  field("validation_rows", notes.settings.validation_rows);
  field("prompt", notes.settings.prompt);
  field("bf16_export", notes.settings.bf16_export);
}

}  // namespace

std::string to_json(const TrainNotes& notes) {
  Json json;
  for_fields(notes, [&](const char* name, const auto& value) { json[name] = value; });
  // Names of files are any bytes, JSON is UTF-8.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

TrainNotes train_notes_from_json(const std::string& text, const std::string& path) {
  TrainNotes notes;
  try {
    const Json json = Json::parse(text);
    for_fields(notes, [&](const char* name, auto& value) {
      const bool newer = std::string_view(name) == "repeat_sentences";  // absent in older runs
      if (!newer || json.contains(name)) json.at(name).get_to(value);
    });
  } catch (const Json::exception& error) {
    throw Error(Error::Kind::value,
                fmt::format("{}: notes: was not written by cephalo train: {}", path, error.what()));
  }
  return notes;
}

}  // namespace cephalo::cli
