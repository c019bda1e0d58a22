#include "cephalo/train/text_rows.h"

#include <algorithm>
#include <utility>

#include "cephalo/core/fail.h"
#include "cephalo/core/random.h"

namespace cephalo {
namespace {

// Numbers that belong to one row or round and to nothing else.
enum class Purpose : std::uint32_t { order, cut, repeat };

PhiloxCounter draw(std::uint64_t seed, Purpose purpose, std::int64_t number) {
  const auto wide = static_cast<std::uint64_t>(number);
  return philox(seed, {static_cast<std::uint32_t>(wide), static_cast<std::uint32_t>(wide >> 32),
                       static_cast<std::uint32_t>(purpose), 0});
}

// 0 .. count, evenly as far as 32 bits go.
std::int64_t below(std::uint32_t word, std::int64_t count) {
  return static_cast<std::int64_t>(
      (static_cast<std::uint64_t>(word) * static_cast<std::uint64_t>(count)) >> 32);
}

}  // namespace

// Four rounds of Feistel's network permute the numbers of an even count of bits; what falls outside
// is sent through again until it falls inside, which keeps it a permutation.
std::int64_t shuffled_place(std::uint64_t seed, std::int64_t index, std::int64_t count) {
  require(index >= 0 && index < count && count < (std::int64_t{1} << 62),
          "shuffled_place: index ({}) must be in [0, {})", index, count);
  int half = 1;
  while ((std::int64_t{1} << (2 * half)) < count) ++half;
  const std::uint64_t mask = (std::uint64_t{1} << half) - 1;
  auto place = static_cast<std::uint64_t>(index);
  do {
    std::uint64_t left = place >> half;
    std::uint64_t right = place & mask;
    for (std::uint32_t round = 0; round < 4; ++round) {
      const PhiloxCounter words =
          philox(seed, {static_cast<std::uint32_t>(right), static_cast<std::uint32_t>(right >> 32),
                        static_cast<std::uint32_t>(Purpose::order), round});
      left = std::exchange(right, left ^ (words[0] & mask));
    }
    place = left << half | right;
  } while (place >= static_cast<std::uint64_t>(count));
  return static_cast<std::int64_t>(place);
}

TextRows::TextRows(TokenStream stream, const TextRowsOptions& options)
    : stream_(std::move(stream)), options_(options) {
  constexpr const char* kName = "TextRows";
  require(options_.tokens >= 1, "{}: tokens ({}) must be >= 1", kName, options_.tokens);
  require(options_.repeat_share >= 0.0 && options_.repeat_share <= 1.0,
          "{}: repeat_share ({}) must be in [0, 1]", kName, options_.repeat_share);
  require(options_.repeat_min >= 1 && options_.repeat_min <= options_.repeat_max,
          "{}: repeat_min ({}) must be from 1 to repeat_max ({})", kName, options_.repeat_min,
          options_.repeat_max);
  require(stream_.tokens() > options_.tokens,
          "{}: the text has {} tokens, a row needs {}; a shorter context_length or more text helps",
          kName, stream_.tokens(), options_.tokens + 1);
  windows_ = (options_.shuffle ? stream_.tokens() : stream_.tokens() - 1) / options_.tokens;
}

// After the last token comes the first: a round may begin anywhere.
void TextRows::read_around(std::int64_t begin, std::span<std::int64_t> ids) const {
  const auto left = static_cast<std::size_t>(stream_.tokens() - begin);
  const std::size_t before = std::min(ids.size(), left);
  stream_.read(begin, ids.first(before));
  stream_.read(0, ids.subspan(before));
}

void TextRows::operator()(std::int64_t number, std::span<std::int64_t> ids) const {
  require(number >= 0 && static_cast<std::int64_t>(ids.size()) == options_.tokens + 1,
          "TextRows: row {} of {} ids is asked for, rows have {}", number, ids.size(),
          options_.tokens + 1);
  const std::int64_t round = number / windows_;
  std::int64_t window = number % windows_;
  std::int64_t cut = 0;
  if (options_.shuffle) {
    window = shuffled_place(mix_seed(options_.seed, static_cast<std::uint64_t>(round)), window,
                            windows_);
    const auto wide = draw(options_.seed, Purpose::cut, round);
    cut = static_cast<std::int64_t>(((std::uint64_t{wide[0]} << 30) ^ wide[1]) %
                                    static_cast<std::uint64_t>(stream_.tokens()));
  }
  const std::int64_t begin = (cut + window * options_.tokens) % stream_.tokens();
  const std::size_t first = options_.first_token.has_value() ? 1 : 0;
  if (first == 1) ids[0] = *options_.first_token;
  ids = ids.subspan(first);
  const PhiloxCounter words = draw(options_.seed, Purpose::repeat, number);
  const double share = static_cast<double>(words[0]) * 0x1p-32;
  if (share >= options_.repeat_share) {
    read_around(begin, ids);
    return;
  }
  const std::int64_t range = options_.repeat_max - options_.repeat_min + 1;
  const auto length =
      std::min(ids.size(), static_cast<std::size_t>(options_.repeat_min + below(words[1], range)));
  read_around(begin, ids.first(length));
  for (std::size_t k = length; k < ids.size(); ++k) ids[k] = ids[k - length];
}

}  // namespace cephalo
