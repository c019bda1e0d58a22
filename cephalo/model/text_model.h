#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cephalo/model/gpt_file.h"
#include "cephalo/text/bpe.h"

#pragma GCC visibility push(default)
namespace cephalo {

// A GPT with its tokenizer: from text to logits.
struct TextModel {
  std::string name;  // its folder's
  Gpt gpt;
  GptConfig config;
  Bpe tokenizer;

  // The token that begins a text: bos_token_id of config.json, or else <|endoftext|> where the
  // vocabulary has it.
  std::optional<std::int64_t> first_token() const;
  // The text's ids; with `begin`, first_token() before them.
  std::vector<std::int64_t> encode(std::string_view text, bool begin) const;
  // The bytes of a token; none for an id that the model has and the tokenizer has not.
  std::string_view piece(std::int64_t id) const;
};

// A folder with config.json, model.safetensors, vocab.json and merges.txt: see load_gpt, Bpe::load.
TextModel load_text_model(const std::string& folder, const LoadGptOptions& options = {},
                          std::vector<std::string>* warnings = nullptr);

}  // namespace cephalo
#pragma GCC visibility pop
