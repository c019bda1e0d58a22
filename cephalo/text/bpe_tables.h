#pragma once

// Inside the library only: what a Bpe holds.
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cephalo/core/turn.h"
#include "cephalo/text/bpe.h"
#include "cephalo/text/bpe_merge.h"

namespace cephalo {

// Strings one after the other in one piece of memory.
class StringList {
 public:
  std::size_t size() const { return ends_.size(); }
  std::string_view operator[](std::size_t k) const {
    const std::size_t begin = k == 0 ? 0 : ends_[k - 1];
    return std::string_view(bytes_).substr(begin, ends_[k] - begin);
  }
  void push_back(std::string_view text) {
    bytes_ += text;
    ends_.push_back(static_cast<std::uint32_t>(bytes_.size()));
  }

 private:
  std::string bytes_;
  std::vector<std::uint32_t> ends_;
};

// string -> its place in a list. The list is not kept: it is passed again to ask.
class StringIndex {
 public:
  static constexpr std::uint32_t kNone = UINT32_MAX;

  explicit StringIndex(std::size_t count);
  StringIndex(const StringList& list, std::size_t count);     // with all of the list
  std::size_t room() const { return slots_.size() / 4 * 3; }  // strings until it gets slow

  // The place of an equal string that is there already, or kNone and it is there from now on.
  std::uint32_t insert(const StringList& list, std::uint32_t place);
  std::uint32_t find(const StringList& list, std::string_view text) const;

 private:
  std::vector<std::uint32_t> slots_;
};

// The tokens of the 256 bytes; one that is missing is an error of the vocabulary called `name`.
std::array<TokenId, 256> find_bytes(const StringList& tokens, const StringIndex& index,
                                    const std::string& name);

// What a Bpe holds. Nothing changes after construction but the scratch that calls lend each other.
struct BpeTables {
  // A special token as it stands in a text.
  struct Special {
    std::string text;
    TokenId id;
  };

  // list: id -> bytes, places: the other way, each byte among them; results: the token that each
  // pair becomes.
  BpeTables(StringList list, StringIndex places, std::vector<Bpe::Merge> pairs,
            std::span<const TokenId> results);

  // Scratch of a call that is over, or new: there is as much as there ever were calls at once.
  std::unique_ptr<BpeScratch> borrow() const;
  void give_back(std::unique_ptr<BpeScratch> scratch) const;

  const StringList tokens;
  const StringIndex index;
  const std::vector<Bpe::Merge> merges;
  const std::vector<Special> special;  // longest first
  const BpeMerger merger;

 private:
  mutable Turn turn_{"Bpe"};
  mutable std::vector<std::unique_ptr<BpeScratch>> idle_;
};

// The two files, read and checked: errors name file, line and token.
std::shared_ptr<const BpeTables> parse_bpe(std::string_view vocab_json,
                                           const std::string& vocab_name,
                                           std::string_view merges_txt,
                                           const std::string& merges_name,
                                           std::int64_t model_vocab_size);

}  // namespace cephalo
