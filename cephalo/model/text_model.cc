#include "cephalo/model/text_model.h"

#include <utility>

namespace cephalo {

std::optional<std::int64_t> TextModel::first_token() const {
  if (config.bos_token_id) return config.bos_token_id;
  if (const auto id = tokenizer.find("<|endoftext|>")) return *id;
  return std::nullopt;
}

std::vector<std::int64_t> TextModel::encode(std::string_view text, bool begin) const {
  std::vector<std::int64_t> ids;
  if (begin && first_token()) ids.push_back(*first_token());
  const std::vector<TokenId> encoded = tokenizer.encode(text);
  ids.insert(ids.end(), encoded.begin(), encoded.end());
  return ids;
}

std::string_view TextModel::piece(std::int64_t id) const {
  return id < tokenizer.vocab_size() ? tokenizer.token(static_cast<TokenId>(id)) : "";
}

TextModel load_text_model(const std::string& folder, const LoadGptOptions& options,
                          std::vector<std::string>* warnings) {
  LoadedGpt loaded = load_gpt(folder, options, warnings);
  Bpe tokenizer = Bpe::load(folder, loaded.model.options().vocab_size);
  return {folder, std::move(loaded.model), loaded.config, std::move(tokenizer)};
}

}  // namespace cephalo
