#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cephalo/io/file.h"
#include "cephalo/text/token.h"

#pragma GCC visibility push(default)
namespace cephalo {

struct BpeTables;

// Byte-level BPE, the tokenizer of GPT-2: text is split into pieces by GPT-2's pattern, and in each
// piece neighbours are joined, those of the earliest line of merges.txt first, the leftmost of
// equals first. The same ids as Hugging Face's tokenizers from the same files.
//
// Text is any bytes, and decode gives them back. A byte that is not part of well-formed UTF-8 is
// split off as U+FFFD would be, but stays that byte.
//
// A token that no merge makes and that is not a single byte, such as <|endoftext|>, is special: it
// is found in a text only when the caller allows it by name; otherwise its letters are text as any
// other.
//
// Copies share what was loaded. Any number of threads may use one object.
class Bpe {
 public:
  // token -> its place, and pairs of tokens in the order in which they are joined. A list that
  // lacks a byte, a part or a result is an error.
  using Merge = std::pair<TokenId, TokenId>;
  Bpe(std::vector<std::string> tokens, std::vector<Merge> merges);

  // From a folder with vocab.json and merges.txt, or encoder.json and vocab.bpe. model_vocab_size:
  // ids from there on are an error (0: any).
  static Bpe load(const std::string& folder, std::int64_t model_vocab_size = 0);
  static Bpe load(const std::string& vocab_path, const std::string& merges_path,
                  std::int64_t model_vocab_size = 0);
  // The same from the contents of the two files; messages call them vocab.json and merges.txt.
  static Bpe parse(std::string_view vocab_json, std::string_view merges_txt,
                   std::int64_t model_vocab_size = 0);

  // Writes vocab.json and merges.txt into a folder, which is made where there is none.
  void save(const std::string& folder, bool replace = false) const;
  std::string vocab_json() const;
  std::string merges_txt() const;

  std::int64_t vocab_size() const;
  std::span<const Merge> merges() const;
  std::string_view token(TokenId id) const;  // its bytes; lives as long as any copy of this
  std::optional<TokenId> find(std::string_view bytes) const;
  std::vector<std::string> special_tokens() const;  // by id

  // Of the whole vocabulary: equal where all ids are.
  using Fingerprint = std::array<unsigned char, 16>;
  Fingerprint fingerprint() const;

  // The special tokens of `allowed` become their ids, the leftmost first, of those the longest. One
  // that the vocabulary does not have as a special token is an error.
  std::vector<TokenId> encode(std::string_view text,
                              std::span<const std::string> allowed = {}) const;

  // A file from begin to end in blocks, so that its size does not matter: take(ids, bytes of the
  // file done) is called for every block.
  using TakeIds = std::function<void(std::span<const TokenId> ids, std::int64_t bytes_done)>;
  void encode_file(const InputFile& file, std::span<const std::string> allowed,
                   const TakeIds& take) const;

  // The bytes of the tokens. An id outside the vocabulary is an error that names it.
  std::string decode(std::span<const TokenId> ids) const;

 private:
  explicit Bpe(std::shared_ptr<const BpeTables> tables) : tables_(std::move(tables)) {}

  std::shared_ptr<const BpeTables> tables_;
};

}  // namespace cephalo
#pragma GCC visibility pop
