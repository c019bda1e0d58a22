#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cephalo/core/shape.h"
#include "cephalo/io/file.h"
#include "cephalo/text/bpe.h"

#pragma GCC visibility push(default)
namespace cephalo {

// A corpus as token ids, wherever they lie. Any number of threads may read.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual dim_t tokens() const = 0;
  virtual std::int64_t vocab_size() const = 0;
  // ids[k] = the token at begin + k; all of them must be there.
  virtual void read(dim_t begin, std::span<TokenId> ids) const = 0;
};

// Token ids that fit into memory.
class TokensInMemory : public TokenSource {
 public:
  // An id outside of vocab_size is an error that names its position.
  TokensInMemory(std::vector<TokenId> ids, std::int64_t vocab_size);

  dim_t tokens() const override { return static_cast<dim_t>(ids_.size()); }
  std::int64_t vocab_size() const override { return vocab_size_; }
  void read(dim_t begin, std::span<TokenId> ids) const override;

 private:
  std::vector<TokenId> ids_;
  std::int64_t vocab_size_;
};

// A file of token ids on disk, from which windows are read as they are needed: of a corpus of any
// size only those are in memory. Little-endian:
//   "CEPHTOK1"
//   ids                    2 bytes each for a vocab_size up to 65,536, otherwise 4
//   tokens, vocab_size     8 bytes each
//   fingerprint            16 bytes, of the vocabulary that made it
//   checksum               16 bytes, XXH3 of all before
class TokenFile : public TokenSource {
 public:
  // Reads it through once: a flipped bit, a cut or another vocabulary than `vocabulary` (where
  // given) is an error.
  explicit TokenFile(const std::string& path, const Bpe* vocabulary = nullptr);

  const std::string& path() const { return file_.path(); }
  dim_t tokens() const override { return tokens_; }
  std::int64_t vocab_size() const override { return vocab_size_; }
  void read(dim_t begin, std::span<TokenId> ids) const override;
  const Bpe::Fingerprint& fingerprint() const { return fingerprint_; }

 private:
  InputFile file_;
  dim_t tokens_ = 0;
  std::int64_t vocab_size_ = 0;
  Bpe::Fingerprint fingerprint_{};
};

// How write_token_file reads texts.
struct TokenFileOptions {
  std::optional<TokenId> before_each_file = {};   // <|endoftext|> between books
  std::vector<std::string> allowed_special = {};  // found in the texts, as Bpe::encode
  bool replace = false;                           // a file that exists
  std::function<void(std::int64_t done_bytes, std::int64_t all_bytes)> progress = {};
};

// Tokenises text files, one after the other, into a token file that appears when it is whole. Texts
// are read in blocks and ids written as they come. Returns how many there are.
dim_t write_token_file(const Bpe& bpe, std::span<const std::string> texts, const std::string& path,
                       const TokenFileOptions& options = {});

}  // namespace cephalo
#pragma GCC visibility pop
