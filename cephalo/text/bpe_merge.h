#pragma once

// Inside the library only: from the bytes of one piece to token ids.
#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "cephalo/text/bpe.h"

namespace cephalo {

// (left, right) -> the rank of their merge and the token that it makes.
class PairTable {
 public:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  struct Found {
    std::uint32_t rank = kNone;
    TokenId id = 0;
  };

  explicit PairTable(std::size_t count);
  bool insert(TokenId left, TokenId right, Found found);  // false: the pair is there already
  Found find(TokenId left, TokenId right) const;

 private:
  struct Slot {
    std::uint64_t key;
    Found found;
  };
  std::size_t first_slot(std::uint64_t key) const;

  int shift_ = 0;
  std::vector<Slot> slots_;
};

// Short pieces and their ids. Text repeats its words: most pieces are found here.
class PieceCache {
 public:
  static constexpr std::size_t kMaxBytes = 22;
  static constexpr std::size_t kMaxIds = 10;

  struct Entry {  // a cache line
    std::array<char, kMaxBytes> piece{};
    std::uint8_t bytes = 0;  // 0: nothing here
    std::uint8_t count = 0;
    std::array<TokenId, kMaxIds> ids{};
  };
  static_assert(sizeof(Entry) == 64);

  PieceCache() : entries_(kEntries) {}
  // Where the piece is or may be put. piece: 1 to kMaxBytes bytes
  Entry& entry_of(std::string_view piece);
  static bool holds(const Entry& entry, std::string_view piece);

 private:
  static constexpr std::size_t kEntries = 1 << 15;
  std::vector<Entry> entries_;
};

// What one call at a time works in; kept for the next call.
struct BpeScratch {
  PieceCache cache;
  // Of long pieces: tokens in a list, the ranks of pairs, and the pairs by rank and place.
  std::vector<TokenId> ids;
  std::vector<std::uint32_t> next, previous, ranks;
  std::vector<std::uint64_t> heap;
};

class BpeMerger {
 public:
  // byte -> its token; merges in the order of their ranks, with what they make
  BpeMerger(const std::array<TokenId, 256>& byte_ids, std::span<const Bpe::Merge> merges,
            std::span<const TokenId> results);

  // Appends the tokens of one piece.
  void encode(std::string_view piece, BpeScratch& scratch, std::vector<TokenId>& ids) const;

 private:
  void merge_short(std::string_view piece, std::vector<TokenId>& ids) const;
  void merge_long(std::string_view piece, BpeScratch& scratch, std::vector<TokenId>& ids) const;

  std::array<TokenId, 256> byte_ids_;
  PairTable pairs_;
};

}  // namespace cephalo
