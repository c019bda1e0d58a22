#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cephalo/core/tensor.h"
#include "cephalo/text/token.h"

#pragma GCC visibility push(default)
namespace cephalo {

// Words and punctuation: split at white space, as Python's \s, and around , . : ; ? _ ! " ( ) ' and
// --, which stay as pieces of their own.
std::vector<std::string> split_words(std::string_view text);

// The distinct pieces, sorted by code point; a piece's id is its place.
class WordVocabulary {
 public:
  explicit WordVocabulary(const std::vector<std::string>& pieces);

  dim_t size() const { return static_cast<dim_t>(words_.size()); }
  const std::vector<std::string>& words() const { return words_; }
  Tensor encode(const std::vector<std::string>& pieces) const;  // int64 [tokens]

 private:
  std::vector<std::string> words_;
};

// The book's two tokenizers of words. v1 knows the words of its text and no others; v2 adds
// <|endoftext|> and <|unk|> as the last two, and reads every word that it does not know as <|unk|>.
class WordTokenizer {
 public:
  enum class Version { v1, v2 };
  WordTokenizer(std::string_view text, Version version);

  const std::vector<std::string>& words() const { return words_; }  // by id
  dim_t vocab_size() const { return static_cast<dim_t>(words_.size()); }

  std::vector<TokenId> encode(std::string_view text) const;
  // Words with spaces between, but none before punctuation: the text's own spaces are lost.
  std::string decode(std::span<const TokenId> ids) const;

 private:
  Version version_;
  std::vector<std::string> words_;
  std::size_t sorted_;  // words before <|endoftext|>
};

}  // namespace cephalo
#pragma GCC visibility pop
