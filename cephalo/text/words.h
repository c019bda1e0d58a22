#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cephalo/core/tensor.h"

namespace cephalo {

// Words and punctuation: split at white space and around , . : ; ? _ ! " ( ) ' and --, which stay
// as pieces of their own.
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

}  // namespace cephalo
