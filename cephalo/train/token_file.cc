#include "cephalo/train/token_file.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "cephalo/core/fail.h"

namespace cephalo {
namespace {

constexpr std::int64_t kNarrow = 65536;  // the largest vocabulary of 2 bytes

std::int64_t width_of(std::int64_t vocab_size) {
  return vocab_size <= kNarrow ? 2 : 4;
}

}  // namespace

TokenFile::TokenFile(const std::string& path, std::int64_t vocab_size)
    : file_(path), vocab_size_(vocab_size), width_(width_of(vocab_size)) {
  require(file_.size() % width_ == 0, "{}: has {} bytes, not a multiple of {}: no file of tokens",
          path, file_.size(), width_);
}

void TokenFile::read(std::int64_t begin, std::span<std::int64_t> ids) const {
  const auto count = static_cast<std::int64_t>(ids.size());
  require(begin >= 0 && count <= tokens() - begin, "{}: has {} tokens, {} from {} on are asked for",
          path(), tokens(), count, begin);
  // Read into the end of where they go: widening from the front never overtakes what is unread.
  auto* raw = reinterpret_cast<unsigned char*>(ids.data()) + (8 - width_) * count;
  file_.read(begin * width_, raw, width_ * count);
  for (std::int64_t k = 0; k < count; ++k) {
    std::uint32_t id = 0;
    std::memcpy(&id, raw + k * width_, static_cast<std::size_t>(width_));
    require(id < vocab_size_, "{}: token {} at place {} is outside the vocabulary of {}", path(),
            id, begin + k, vocab_size_);
    ids[static_cast<std::size_t>(k)] = id;
  }
}

std::string TokenFile::checksum() const {
  constexpr std::int64_t kBlock = 1 << 20;
  std::vector<std::byte> block(static_cast<std::size_t>(std::min(kBlock, file_.size())));
  Checksum checksum;
  for (std::int64_t begin = 0; begin < file_.size(); begin += kBlock) {
    const std::int64_t bytes = std::min(kBlock, file_.size() - begin);
    file_.read(begin, block.data(), bytes);
    checksum.add(block.data(), static_cast<std::size_t>(bytes));
  }
  return fmt::format("{:02x}", fmt::join(checksum.value(), ""));
}

TokenFileWriter::TokenFileWriter(const std::string& path, std::int64_t vocab_size)
    : file_(path, true), wide_(width_of(vocab_size) == 4) {}

void TokenFileWriter::add(std::span<const std::int32_t> ids) {
  tokens_ += static_cast<std::int64_t>(ids.size());
  if (wide_) {
    file_.write(ids.data(), ids.size_bytes());
    return;
  }
  narrow_.assign(ids.begin(), ids.end());
  file_.write(narrow_.data(), narrow_.size() * sizeof(std::uint16_t));
}

void TokenFileWriter::finish() {
  file_.finish();
}

TokenStream::TokenStream(std::shared_ptr<const TokenFile> file, std::vector<Part> parts)
    : file_(std::move(file)), parts_(std::move(parts)), starts_{0} {
  for (const Part& part : parts_) {
    require(part.begin >= 0 && part.begin <= part.end && part.end <= file_->tokens(),
            "{}: has {} tokens, not those from {} to {}", file_->path(), file_->tokens(),
            part.begin, part.end);
    starts_.push_back(starts_.back() + part.end - part.begin);
  }
}

void TokenStream::read(std::int64_t begin, std::span<std::int64_t> ids) const {
  require(begin >= 0 && static_cast<std::int64_t>(ids.size()) <= tokens() - begin,
          "{}: this part of it has {} tokens, {} from {} on are asked for", file_->path(), tokens(),
          ids.size(), begin);
  const auto after = std::upper_bound(starts_.begin(), starts_.end(), begin);
  for (auto k = static_cast<std::size_t>(after - starts_.begin()) - 1; !ids.empty(); ++k) {
    const std::int64_t inside = begin - starts_[k];
    const std::int64_t left = parts_[k].end - parts_[k].begin - inside;
    const std::size_t count = std::min(ids.size(), static_cast<std::size_t>(left));
    file_->read(parts_[k].begin + inside, ids.first(count));
    ids = ids.subspan(count);
    begin += static_cast<std::int64_t>(count);
  }
}

}  // namespace cephalo
