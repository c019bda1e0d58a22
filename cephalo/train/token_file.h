#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cephalo/io/checksum.h"
#include "cephalo/io/file.h"

namespace cephalo {

// A corpus as ids, one after the other and nothing else: 2 bytes each for a vocabulary of at most
// 65,536 tokens, 4 for a larger one, the lowest byte first. Read where it is needed, so that its
// size costs no memory.
class TokenFile {
 public:
  TokenFile(const std::string& path, std::int64_t vocab_size);

  const std::string& path() const { return file_.path(); }
  std::int64_t tokens() const { return file_.size() / width_; }
  // ids: [count], tokens `begin` and on; one outside the vocabulary is an error that names its
  // place
  void read(std::int64_t begin, std::span<std::int64_t> ids) const;
  std::string checksum() const;  // of the whole file, as hexadecimal digits

 private:
  InputFile file_;
  std::int64_t vocab_size_;
  std::int64_t width_;
};

class TokenFileWriter {
 public:
  TokenFileWriter(const std::string& path, std::int64_t vocab_size);

  void add(std::span<const std::int32_t> ids);
  std::int64_t tokens() const { return tokens_; }
  void finish();  // whole and durable under its name

 private:
  AtomicFile file_;
  bool wide_;
  std::int64_t tokens_ = 0;
  std::vector<std::uint16_t> narrow_;
};

// Parts of a token file, end to end: all that is for training, say.
class TokenStream {
 public:
  struct Part {
    std::int64_t begin, end;
  };
  TokenStream(std::shared_ptr<const TokenFile> file, std::vector<Part> parts);

  std::int64_t tokens() const { return starts_.back(); }
  void read(std::int64_t begin, std::span<std::int64_t> ids) const;

 private:
  std::shared_ptr<const TokenFile> file_;
  std::vector<Part> parts_;
  std::vector<std::int64_t> starts_;  // of each part in the stream, and the end of the last
};

}  // namespace cephalo
