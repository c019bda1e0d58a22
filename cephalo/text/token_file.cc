#include "cephalo/text/token_file.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "cephalo/core/fail.h"
#include "cephalo/io/checksum.h"

namespace cephalo {
namespace {

constexpr std::array<char, 8> kMagic = {'C', 'E', 'P', 'H', 'T', 'O', 'K', '1'};

struct Trailer {
  std::int64_t tokens;
  std::int64_t vocab_size;
  Bpe::Fingerprint fingerprint;
};
static_assert(sizeof(Trailer) == 32);

constexpr std::int64_t kBegin = kMagic.size();
constexpr std::int64_t kEnd = sizeof(Trailer) + sizeof(Checksum::Value);

std::int64_t id_bytes(std::int64_t vocab_size) {
  return vocab_size <= 65536 ? 2 : 4;
}

void check_range(const char* what, dim_t begin, std::size_t count, dim_t tokens) {
  const auto wanted = static_cast<dim_t>(count);
  require(begin >= 0 && begin <= tokens && wanted <= tokens - begin,
          "{}: tokens {} to {} of {} were asked for", what, begin, begin + wanted, tokens);
}

void check_id(const std::string& what, TokenId id, dim_t position, std::int64_t vocab_size) {
  require(id >= 0 && id < vocab_size, "{}: id {} at position {} is outside the vocabulary of {}",
          what, id, position, vocab_size);
}

// Ids into the bytes of a token file, checksum included.
class Writer {
 public:
  Writer(const Bpe& bpe, const std::string& path, bool replace)
      : file_(path, replace), trailer_{0, bpe.vocab_size(), bpe.fingerprint()} {
    write(kMagic.data(), kMagic.size());
  }

  void add(std::span<const TokenId> ids) {
    if (id_bytes(trailer_.vocab_size) == 4) {
      write(ids.data(), ids.size_bytes());
    } else {
      narrow_.assign(ids.begin(), ids.end());
      write(narrow_.data(), 2 * narrow_.size());
    }
    trailer_.tokens += static_cast<dim_t>(ids.size());
  }

  dim_t finish() {
    write(&trailer_, sizeof trailer_);
    const Checksum::Value sum = checksum_.value();
    file_.write(sum.data(), sum.size());
    file_.finish();
    return trailer_.tokens;
  }

 private:
  void write(const void* data, std::size_t bytes) {
    checksum_.add(data, bytes);
    file_.write(data, bytes);
  }

  AtomicFile file_;
  Checksum checksum_;
  Trailer trailer_;
  std::vector<std::uint16_t> narrow_;
};

}  // namespace

TokensInMemory::TokensInMemory(std::vector<TokenId> ids, std::int64_t vocab_size)
    : ids_(std::move(ids)), vocab_size_(vocab_size) {
  for (std::size_t k = 0; k < ids_.size(); ++k) {
    check_id("TokensInMemory", ids_[k], static_cast<dim_t>(k), vocab_size_);
  }
}

void TokensInMemory::read(dim_t begin, std::span<TokenId> ids) const {
  check_range("TokensInMemory", begin, ids.size(), tokens());
  std::copy_n(ids_.begin() + begin, ids.size(), ids.begin());
}

TokenFile::TokenFile(const std::string& path, const Bpe* vocabulary) : file_(path) {
  require(file_.size() >= kBegin + kEnd, "{}: is not a token file: {} bytes, the least is {}", path,
          file_.size(), kBegin + kEnd);
  std::array<char, kBegin> magic{};
  file_.read(0, magic.data(), kBegin);
  require(magic == kMagic, "{}: is not a token file: it does not begin with CEPHTOK1", path);
  require(ends_with_checksum(file_),
          "{}: its checksum is wrong: it was changed after it was written", path);
  Trailer trailer{};
  file_.read(file_.size() - kEnd, &trailer, sizeof trailer);
  const std::int64_t room = file_.size() - kBegin - kEnd;
  require(trailer.vocab_size > 0 && trailer.vocab_size <= INT32_MAX && trailer.tokens >= 0 &&
              trailer.tokens <= room && trailer.tokens * id_bytes(trailer.vocab_size) == room,
          "{}: claims {} tokens with vocab_size {}, but its ids take {} bytes", path,
          trailer.tokens, trailer.vocab_size, room);
  tokens_ = trailer.tokens;
  vocab_size_ = trailer.vocab_size;
  fingerprint_ = trailer.fingerprint;
  require(vocabulary == nullptr || vocabulary->fingerprint() == fingerprint_,
          "{}: was made with another vocabulary; tokenise the corpus again", path);
}

void TokenFile::read(dim_t begin, std::span<TokenId> ids) const {
  check_range(path().c_str(), begin, ids.size(), tokens_);
  const auto count = static_cast<dim_t>(ids.size());
  const std::int64_t width = id_bytes(vocab_size_);
  file_.read(kBegin + begin * width, ids.data(), count * width);
  if (width == 2) {  // widened where they lie, from the last one on
    const auto* bytes = reinterpret_cast<const unsigned char*>(ids.data());
    for (std::size_t k = ids.size(); k-- > 0;) {
      std::uint16_t id = 0;
      std::memcpy(&id, bytes + 2 * k, 2);
      ids[k] = id;
    }
  }
  for (dim_t k = 0; k < count; ++k)
    check_id(path(), ids[static_cast<std::size_t>(k)], begin + k, vocab_size_);
}

dim_t write_token_file(const Bpe& bpe, std::span<const std::string> texts, const std::string& path,
                       const TokenFileOptions& options) {
  std::int64_t all_bytes = 0;
  for (const std::string& text : texts) all_bytes = checked_add(all_bytes, InputFile(text).size());
  Writer writer(bpe, path, options.replace);
  std::int64_t before = 0;
  for (const std::string& text : texts) {
    if (options.before_each_file) {
      check_id("write_token_file", *options.before_each_file, 0, bpe.vocab_size());
      writer.add({&*options.before_each_file, 1});
    }
    const InputFile file(text);
    bpe.encode_file(file, options.allowed_special,
                    [&](std::span<const TokenId> ids, std::int64_t done) {
                      writer.add(ids);
                      if (options.progress) options.progress(before + done, all_bytes);
                    });
    before += file.size();
  }
  return writer.finish();
}

}  // namespace cephalo
