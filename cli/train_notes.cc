#include "cli/train_notes.h"

#include <string_view>

#include "cephalo/io/json.h"

namespace cephalo::cli {
namespace {

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
  field("export_last", notes.settings.export_last);
}

}  // namespace

std::string to_json(const TrainNotes& notes) {
  Json json;
  for_fields(notes, [&](const char* name, const auto& value) { json[name] = value; });
  // Names of files are any bytes, JSON is UTF-8.
  json.sort_members();
  return json.dump({.replace = true});
}

TrainNotes train_notes_from_json(const std::string& text, const std::string& path) {
  TrainNotes notes;
  const std::string name = path + ": notes";
  const Json json = parse_json(text, name);
  const JsonMembers members(json, name);
  for_fields(notes, [&](const char* key, auto& value) {
    const std::string_view field = key;
    const bool newer = field == "repeat_sentences" || field == "export_last";  // not in older runs
    if (!newer || json.contains(key)) members(key, value);
  });
  return notes;
}

}  // namespace cephalo::cli
