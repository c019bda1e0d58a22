#include "cephalo/text/bpe_merge.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>

#include "cephalo/core/fail.h"

namespace cephalo {
namespace {

constexpr std::uint32_t kNone = PairTable::kNone;

// Up to here looking at every pair for each merge is quicker than a heap.
constexpr std::size_t kShortBytes = 64;

constexpr std::uint64_t kMultiplier = 0x9E3779B97F4A7C15U;  // 2^64 / the golden ratio

std::uint64_t key_of(TokenId left, TokenId right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
         static_cast<std::uint32_t>(right);
}

}  // namespace

PairTable::PairTable(std::size_t count) {
  const std::size_t slots = std::bit_ceil(2 * count + 2);  // at most half of them are taken
  shift_ = 64 - std::countr_zero(slots);
  slots_.assign(slots, {0, {}});
}

std::size_t PairTable::first_slot(std::uint64_t key) const {
  return (key ^ key >> 29) * kMultiplier >> shift_;
}

bool PairTable::insert(TokenId left, TokenId right, Found found) {
  const std::uint64_t key = key_of(left, right);
  std::size_t at = first_slot(key);
  for (; slots_[at].found.rank != kNone; at = (at + 1) & (slots_.size() - 1)) {
    if (slots_[at].key == key) return false;
  }
  slots_[at] = {key, found};
  return true;
}

PairTable::Found PairTable::find(TokenId left, TokenId right) const {
  const std::uint64_t key = key_of(left, right);
  for (std::size_t at = first_slot(key);; at = (at + 1) & (slots_.size() - 1)) {
    const Slot& slot = slots_[at];
    if (slot.key == key || slot.found.rank == kNone) return slot.found;
  }
}

PieceCache::Entry& PieceCache::entry_of(std::string_view piece) {
  std::array<std::uint64_t, 3> words{};
  std::memcpy(words.data(), piece.data(), piece.size());
  std::uint64_t hash = piece.size();
  for (const std::uint64_t word : words) hash = (std::rotl(hash, 23) ^ word) * kMultiplier;
  return entries_[hash >> (64 - std::countr_zero(kEntries))];
}

bool PieceCache::holds(const Entry& entry, std::string_view piece) {
  return entry.bytes == piece.size() &&
         std::memcmp(entry.piece.data(), piece.data(), piece.size()) == 0;
}

BpeMerger::BpeMerger(const std::array<TokenId, 256>& byte_ids, std::span<const Bpe::Merge> merges,
                     std::span<const TokenId> results)
    : byte_ids_(byte_ids), pairs_(merges.size()) {
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    pairs_.insert(merges[rank].first, merges[rank].second,
                  {static_cast<std::uint32_t>(rank), results[rank]});
  }
}

void BpeMerger::encode(std::string_view piece, BpeScratch& scratch,
                       std::vector<TokenId>& ids) const {
  if (piece.size() == 1) {
    ids.push_back(byte_ids_[static_cast<unsigned char>(piece[0])]);
    return;
  }
  if (piece.size() > kShortBytes) return merge_long(piece, scratch, ids);
  if (piece.size() > PieceCache::kMaxBytes) return merge_short(piece, ids);
  PieceCache::Entry& entry = scratch.cache.entry_of(piece);
  if (PieceCache::holds(entry, piece)) {
    ids.insert(ids.end(), entry.ids.begin(), entry.ids.begin() + entry.count);
    return;
  }
  const std::size_t before = ids.size();
  merge_short(piece, ids);
  const std::size_t count = ids.size() - before;
  if (count > PieceCache::kMaxIds) return;
  entry.bytes = static_cast<std::uint8_t>(piece.size());
  entry.count = static_cast<std::uint8_t>(count);
  std::memcpy(entry.piece.data(), piece.data(), piece.size());
  std::copy_n(ids.begin() + static_cast<std::ptrdiff_t>(before), count, entry.ids.begin());
}

void BpeMerger::merge_short(std::string_view piece, std::vector<TokenId>& out) const {
  std::array<TokenId, kShortBytes> ids;             // NOLINT: filled below
  std::array<PairTable::Found, kShortBytes> pairs;  // of k and k + 1
  std::size_t count = piece.size();
  for (std::size_t k = 0; k < count; ++k) ids[k] = byte_ids_[static_cast<unsigned char>(piece[k])];
  for (std::size_t k = 0; k + 1 < count; ++k) pairs[k] = pairs_.find(ids[k], ids[k + 1]);
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t k = 1; k + 1 < count; ++k) {
      if (pairs[k].rank < pairs[best].rank) best = k;
    }
    if (pairs[best].rank == kNone) break;
    ids[best] = pairs[best].id;
    --count;
    for (std::size_t k = best + 1; k < count; ++k) {
      ids[k] = ids[k + 1];
      pairs[k - 1] = pairs[k];
    }
    if (best > 0) pairs[best - 1] = pairs_.find(ids[best - 1], ids[best]);
    if (best + 1 < count) pairs[best] = pairs_.find(ids[best], ids[best + 1]);
  }
  out.insert(out.end(), ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count));
}

// The same with a heap of the pairs by (rank, place). A pair that has changed since stays in the
// heap and is passed over when its turn comes: ranks[k] no longer says the same.
void BpeMerger::merge_long(std::string_view piece, BpeScratch& scratch,
                           std::vector<TokenId>& out) const {
  require(piece.size() < kNone, "encode: a piece of {} bytes, more than 2^32 - 2", piece.size());
  const auto count = static_cast<std::uint32_t>(piece.size());
  auto& ids = scratch.ids;
  auto& next = scratch.next;
  auto& previous = scratch.previous;
  auto& ranks = scratch.ranks;
  auto& heap = scratch.heap;
  ids.resize(count);
  next.resize(count);
  previous.resize(count);
  ranks.assign(count, kNone);
  heap.clear();
  const auto earlier = std::greater<>();
  const auto look_up = [&](std::uint32_t k) {
    ranks[k] = next[k] == count ? kNone : pairs_.find(ids[k], ids[next[k]]).rank;
    if (ranks[k] != kNone) heap.push_back(static_cast<std::uint64_t>(ranks[k]) << 32 | k);
    return ranks[k] != kNone;
  };
  for (std::uint32_t k = 0; k < count; ++k) {
    ids[k] = byte_ids_[static_cast<unsigned char>(piece[k])];
    next[k] = k + 1;
    previous[k] = k == 0 ? count : k - 1;
  }
  for (std::uint32_t k = 0; k < count; ++k) look_up(k);
  std::make_heap(heap.begin(), heap.end(), earlier);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), earlier);
    const auto k = static_cast<std::uint32_t>(heap.back());
    const auto rank = static_cast<std::uint32_t>(heap.back() >> 32);
    heap.pop_back();
    if (ranks[k] != rank) continue;
    const std::uint32_t gone = next[k];
    ids[k] = pairs_.find(ids[k], ids[gone]).id;
    next[k] = next[gone];
    if (next[k] != count) previous[next[k]] = k;
    ranks[gone] = kNone;
    if (look_up(k)) std::push_heap(heap.begin(), heap.end(), earlier);
    if (previous[k] != count && look_up(previous[k])) {
      std::push_heap(heap.begin(), heap.end(), earlier);
    }
  }
  for (std::uint32_t k = 0; k != count; k = next[k]) out.push_back(ids[k]);
}

}  // namespace cephalo
