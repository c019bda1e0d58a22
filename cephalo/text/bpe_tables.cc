#include "cephalo/text/bpe_tables.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <mutex>
#include <utility>

#include "cephalo/core/fail.h"
#include "cephalo/text/byte_alphabet.h"

namespace cephalo {
namespace {

std::size_t slot_of(std::string_view text, std::size_t slots) {
  return std::hash<std::string_view>()(text) & (slots - 1);
}

// What no merge makes and is no byte.
std::vector<BpeTables::Special> find_special(const StringList& tokens,
                                             std::span<const TokenId> results) {
  std::vector<bool> made(tokens.size());
  for (const TokenId id : results) made[static_cast<std::size_t>(id)] = true;
  std::vector<BpeTables::Special> special;
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    if (tokens[id].size() < 2 || made[id]) continue;
    special.push_back({std::string(tokens[id]), static_cast<TokenId>(id)});
  }
  std::stable_sort(special.begin(), special.end(),
                   [](const auto& a, const auto& b) { return a.text.size() > b.text.size(); });
  return special;
}

}  // namespace

std::array<TokenId, 256> find_bytes(const StringList& tokens, const StringIndex& index,
                                    const std::string& name) {
  std::array<TokenId, 256> ids{};
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    const std::uint32_t place = index.find(tokens, {&text, 1});
    if (place == StringIndex::kNone) {
      fail(Error::Kind::value, "{}: lacks the token \"{}\" of byte 0x{:02X}", name,
           to_byte_characters({&text, 1}), byte);
    }
    ids[byte] = static_cast<TokenId>(place);
  }
  return ids;
}

StringIndex::StringIndex(std::size_t count) : slots_(std::bit_ceil(count * 3 / 2 + 2), kNone) {}

StringIndex::StringIndex(const StringList& list, std::size_t count) : StringIndex(count) {
  for (std::uint32_t place = 0; place < list.size(); ++place) insert(list, place);
}

std::uint32_t StringIndex::insert(const StringList& list, std::uint32_t place) {
  std::size_t at = slot_of(list[place], slots_.size());
  for (; slots_[at] != kNone; at = (at + 1) & (slots_.size() - 1)) {
    if (list[slots_[at]] == list[place]) return slots_[at];
  }
  slots_[at] = place;
  return kNone;
}

std::uint32_t StringIndex::find(const StringList& list, std::string_view text) const {
  std::size_t at = slot_of(text, slots_.size());
  while (slots_[at] != kNone && list[slots_[at]] != text) at = (at + 1) & (slots_.size() - 1);
  return slots_[at];
}

BpeTables::BpeTables(StringList list, StringIndex places, std::vector<Bpe::Merge> pairs,
                     std::span<const TokenId> results)
    : tokens(std::move(list)),
      index(std::move(places)),
      merges(std::move(pairs)),
      special(find_special(tokens, results)),
      merger(find_bytes(tokens, index, "Bpe"), merges, results) {}

std::unique_ptr<BpeScratch> BpeTables::borrow() const {
  std::unique_ptr<BpeScratch> scratch;
  // What a fork caught in another thread's hands is left alone: new scratch does as well.
  if (turn_.lock_unless_left_behind()) {
    const std::unique_lock lock(turn_, std::adopt_lock);
    if (!idle_.empty()) {
      scratch = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  return scratch ? std::move(scratch) : std::make_unique<BpeScratch>();
}

void BpeTables::give_back(std::unique_ptr<BpeScratch> scratch) const {
  if (!turn_.lock_unless_left_behind()) return;
  const std::unique_lock lock(turn_, std::adopt_lock);
  idle_.push_back(std::move(scratch));
}

}  // namespace cephalo
