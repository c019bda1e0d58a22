#include "cephalo/text/words.h"

#include <algorithm>

#include "cephalo/core/fail.h"
#include "cephalo/text/pre_split.h"

namespace cephalo {
namespace {

constexpr std::string_view kSeparators = ",.:;?_!\"()'";
constexpr std::string_view kEndOfText = "<|endoftext|>";
constexpr std::string_view kUnknown = "<|unk|>";

// Python's white space: Unicode's and four separators of ASCII.
bool is_space(std::string_view text) {
  return first_character(text).kind == CharacterClass::space ||
         (text[0] >= 0x1C && text[0] <= 0x1F);
}

}  // namespace

std::vector<std::string> split_words(std::string_view text) {
  std::vector<std::string> pieces;
  std::string word;
  const auto finish = [&] {
    if (!word.empty()) pieces.push_back(std::move(word));
    word.clear();
  };
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (is_space(text.substr(at))) {
      finish();
      at += first_character(text.substr(at)).bytes - 1U;
    } else if (text.substr(at, 2) == "--") {
      finish();
      pieces.emplace_back("--");
      ++at;
    } else if (kSeparators.find(c) != std::string_view::npos) {
      finish();
      pieces.emplace_back(1, c);
    } else {
      word += c;
    }
  }
  finish();
  return pieces;
}

WordVocabulary::WordVocabulary(const std::vector<std::string>& pieces) : words_(pieces) {
  // Bytes of UTF-8 sort as code points do.
  std::sort(words_.begin(), words_.end());
  words_.erase(std::unique(words_.begin(), words_.end()), words_.end());
}

Tensor WordVocabulary::encode(const std::vector<std::string>& pieces) const {
  Tensor ids = Tensor::empty({static_cast<dim_t>(pieces.size())}, DType::i64);
  auto* out = ids.mutable_data_as<std::int64_t>();
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const auto found = std::lower_bound(words_.begin(), words_.end(), pieces[i]);
    require(found != words_.end() && *found == pieces[i], "vocabulary: \"{}\" is not in it",
            pieces[i]);
    out[i] = found - words_.begin();
  }
  return ids;
}

WordTokenizer::WordTokenizer(std::string_view text, Version version)
    : version_(version), words_(WordVocabulary(split_words(text)).words()), sorted_(words_.size()) {
  if (version_ == Version::v2) {
    words_.emplace_back(kEndOfText);
    words_.emplace_back(kUnknown);
  }
}

std::vector<TokenId> WordTokenizer::encode(std::string_view text) const {
  std::vector<TokenId> ids;
  const auto end = words_.begin() + static_cast<std::ptrdiff_t>(sorted_);
  for (const std::string& piece : split_words(text)) {
    auto found = std::lower_bound(words_.begin(), end, piece);
    if (found == end || *found != piece) {
      require(version_ == Version::v2, "encode: \"{}\" is not in the vocabulary of {} words", piece,
              words_.size());
      found = piece == kEndOfText ? end : end + 1;
    }
    ids.push_back(static_cast<TokenId>(found - words_.begin()));
  }
  return ids;
}

std::string WordTokenizer::decode(std::span<const TokenId> ids) const {
  // Before these the book's expression takes the space away.
  const std::string_view tight = version_ == Version::v1 ? ",.?!\"()'" : ",.:;?!\"()'";
  std::string text;
  for (std::size_t k = 0; k < ids.size(); ++k) {
    require(ids[k] >= 0 && ids[k] < vocab_size(),
            "decode: id {} at position {} is outside the vocabulary of {}", ids[k], k,
            vocab_size());
    const std::string& word = words_[static_cast<std::size_t>(ids[k])];
    const bool joined = !word.empty() && tight.find(word[0]) != std::string_view::npos;
    if (k > 0 && !joined) text += ' ';
    text += word;
  }
  return text;
}

}  // namespace cephalo
