#include "cephalo/text/words.h"

#include <algorithm>

#include "cephalo/core/fail.h"

namespace cephalo {
namespace {

constexpr std::string_view kSeparators = ",.:;?_!\"()'";
constexpr std::string_view kSpaces = " \t\n\r\f\v";

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
    if (kSpaces.find(c) != std::string_view::npos) {
      finish();
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

}  // namespace cephalo
