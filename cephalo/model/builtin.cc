#include "cephalo/model/builtin.h"

#include <utility>

#include "cephalo/core/fail.h"
#include "cephalo/model/builtin_files.h"

namespace cephalo {
namespace {

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

BuiltinFiles checked_files() {
  require(has_builtin_model(),
          "builtin_model: this library was built without one; load_text_model reads a folder");
  return builtin_files();
}

}  // namespace

bool has_builtin_model() {
  return !builtin_files().model_safetensors.empty();
}

const char* builtin_model_name() {
  return builtin_files().name;
}

Bpe builtin_tokenizer() {
  const BuiltinFiles files = checked_files();
  return Bpe::parse(text_of(files.vocab_json), text_of(files.merges_txt));
}

TextModel builtin_model() {
  const BuiltinFiles files = checked_files();
  LoadedGpt loaded =
      load_gpt(files.name, std::string(text_of(files.config_json)), files.model_safetensors);
  const dim_t vocab_size = loaded.model.options().vocab_size;
  return {files.name, std::move(loaded.model), loaded.config,
          Bpe::parse(text_of(files.vocab_json), text_of(files.merges_txt), vocab_size)};
}

}  // namespace cephalo
