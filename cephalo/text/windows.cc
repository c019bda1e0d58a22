#include "cephalo/text/windows.h"

#include <algorithm>
#include <bit>
#include <mutex>
#include <string_view>

#include "cephalo/core/fail.h"
#include "cephalo/core/random.h"

namespace cephalo {
namespace {

// Which windows are shuffled and which rows repeat must not hang together.
constexpr std::uint64_t kRepeatStream = 0x72657065617473;

// A permutation of [0, count) without a table: a Feistel network over the next even number of bits,
// walked on until it comes back into the range (four steps at most on average).
dim_t permute(dim_t index, dim_t count, std::uint64_t key) {
  const auto half = (std::bit_width(static_cast<std::uint64_t>(count - 1)) + 1) / 2;
  const std::uint64_t mask = (std::uint64_t{1} << half) - 1;
  auto value = static_cast<std::uint64_t>(index);
  do {
    std::uint64_t left = value >> half;
    std::uint64_t right = value & mask;
    for (std::uint64_t round = 0; round < 6; ++round) {
      const std::uint64_t mixed = mix_seed(key + round, right) & mask;
      left = std::exchange(right, left ^ mixed);
    }
    value = left << half | right;
  } while (value >= static_cast<std::uint64_t>(count));
  return static_cast<dim_t>(value);
}

void check(const WindowOptions& o, dim_t tokens) {
  require(o.context_length >= 1, "Windows: context_length ({}) must be at least 1",
          o.context_length);
  require(o.stride >= 1, "Windows: stride ({}) must be at least 1", o.stride);
  require(o.batch >= 1, "Windows: batch ({}) must be at least 1", o.batch);
  require(o.range.begin >= 0 && o.range.begin <= o.range.end && o.range.end <= tokens,
          "Windows: range {} to {} is not within the {} tokens", o.range.begin, o.range.end,
          tokens);
  require(o.range.end - o.range.begin > o.context_length,
          "Windows: {} tokens are too few for a context_length of {}: one more than that is needed",
          o.range.end - o.range.begin, o.context_length);
  require(o.repeated_rows >= 0.0 && o.repeated_rows <= 1.0,
          "Windows: repeated_rows ({}) must be in [0, 1]", o.repeated_rows);
  require(o.repeat_least >= 1 && o.repeat_least <= o.repeat_most,
          "Windows: repeat_least ({}) must be in [1, repeat_most ({})]", o.repeat_least,
          o.repeat_most);
  for (const TokenId id : o.sentence_ends) {
    require(id >= 0, "Windows: sentence_ends: {} is not a token", id);
  }
}

// The row keeps one segment of itself, over and over. ids: [context_length + 1]
void repeat_segment(std::span<std::int64_t> ids, const WindowOptions& o,
                    const PhiloxCounter& draw) {
  const auto tokens = static_cast<dim_t>(ids.size());
  const dim_t most = std::max<dim_t>(1, std::min(o.repeat_most, tokens / 2));
  const dim_t least = std::min(o.repeat_least, most);
  const dim_t length = least + draw[1] % (most - least + 1);
  const dim_t begin = draw[2] % (tokens - length + 1);
  std::copy_n(ids.begin() + begin, length, ids.begin());
  for (dim_t k = length; k < tokens; ++k) {
    ids[static_cast<std::size_t>(k)] = ids[static_cast<std::size_t>(k - length)];
  }
}

// A draw for row `number`, the one of that place in it.
PhiloxCounter draw_for_row(std::uint64_t seed, std::int64_t number, std::uint32_t place) {
  const auto low = static_cast<std::uint32_t>(number);
  const auto high = static_cast<std::uint32_t>(static_cast<std::uint64_t>(number) >> 32);
  return philox(mix_seed(seed, kRepeatStream), {low, high, place, 0});
}

bool is_letter_or_digit(char byte) {
  const auto b = static_cast<unsigned char>(byte);
  // Bytes of a longer character count as letters, but for the closing quotes U+2019 and U+201D.
  return (b >= '0' && b <= '9') || (b >= 'A' && b <= 'Z') || (b >= 'a' && b <= 'z') || b >= 0x80;
}

bool ends_sentence(std::string_view token) {
  for (const std::string_view quote : {"\xE2\x80\x99", "\xE2\x80\x9D"}) {
    if (token.ends_with(quote)) token.remove_suffix(quote.size());
  }
  const std::size_t end = token.find_last_of(".!?");
  if (end == std::string_view::npos) return false;
  const std::string_view after = token.substr(end + 1);
  return std::none_of(after.begin(), after.end(), is_letter_or_digit);
}

}  // namespace

std::vector<TokenId> sentence_ends(const Bpe& bpe) {
  std::vector<TokenId> ends;
  for (TokenId id = 0; id < bpe.vocab_size(); ++id) {
    if (ends_sentence(bpe.token(id))) ends.push_back(id);
  }
  return ends;
}

std::pair<TokenRange, TokenRange> split_tokens(dim_t tokens, double fraction) {
  require(tokens >= 0 && fraction >= 0.0 && fraction <= 1.0,
          "split_tokens: fraction ({}) must be in [0, 1], tokens ({}) at least 0", fraction,
          tokens);
  const auto kept = static_cast<dim_t>(static_cast<double>(tokens) * (1.0 - fraction));
  return {{0, kept}, {kept, tokens}};
}

Windows::Windows(std::shared_ptr<const TokenSource> source, const WindowOptions& options)
    : source_(std::move(source)), options_(options) {
  if (options_.stride == 0) options_.stride = options_.context_length;
  if (options_.range.end == -1) options_.range.end = source_->tokens();
  check(options_, source_->tokens());
  for (const TokenId id : options_.sentence_ends) {
    const auto place = static_cast<std::size_t>(id);
    if (place >= ends_sentence_.size()) ends_sentence_.resize(place + 1);
    ends_sentence_[place] = true;
  }
  const dim_t room = options_.range.end - options_.range.begin - options_.context_length;
  count_ = 1 + (room - 1) / options_.stride;
  // From here on torch.randperm draws in another way.
  constexpr dim_t kMostShuffled = UINT32_MAX / 20;
  require(options_.order != ShuffleOrder::torch || count_ < kMostShuffled,
          "Windows: {} windows are too many for PyTorch's order, which is supported up to {}; use "
          "ShuffleOrder::counter",
          count_, kMostShuffled);
  require(batches_per_epoch() > 0,
          "Windows: batch ({}) is more than all {} windows; allow fewer "
          "with drop_last = false",
          options_.batch, count_);
}

dim_t Windows::batches_per_epoch() const {
  return options_.drop_last ? count_ / options_.batch : 1 + (count_ - 1) / options_.batch;
}

dim_t Windows::rows_per_epoch() const {
  return options_.drop_last ? count_ / options_.batch * options_.batch : count_;
}

dim_t Windows::torch_window(std::int64_t epoch, dim_t row) const {
  const std::unique_lock lock(turn_);
  if (torch_epoch_ != epoch) {
    // Each iterator of a DataLoader draws a seed for workers, then one for its sampler.
    TorchGenerator generator(options_.seed);
    for (std::int64_t draw = 0; draw <= 2 * epoch; ++draw) generator.random64();
    const std::uint64_t sampler_seed = generator.random64() & INT64_MAX;
    torch_order_ = TorchGenerator(sampler_seed).randperm(count_);
    torch_epoch_ = epoch;
  }
  return torch_order_[static_cast<std::size_t>(row)];
}

dim_t Windows::window_of(std::int64_t epoch, dim_t row) const {
  if (!options_.shuffle) return row;
  if (options_.order == ShuffleOrder::torch) return torch_window(epoch, row);
  return permute(row, count_, mix_seed(options_.seed, static_cast<std::uint64_t>(epoch)));
}

void Windows::row(std::int64_t number, std::span<std::int64_t> ids) const {
  require(number >= 0, "Windows: row {} is negative", number);
  require(static_cast<dim_t>(ids.size()) == options_.context_length + 1,
          "Windows: room for {} ids, a row has {}", ids.size(), options_.context_length + 1);
  const dim_t window = window_of(number / rows_per_epoch(), number % rows_per_epoch());
  std::vector<TokenId> tokens(ids.size());
  source_->read(options_.range.begin + window * options_.stride, tokens);
  std::copy(tokens.begin(), tokens.end(), ids.begin());
  if (options_.repeated_rows == 0.0) return;
  const PhiloxCounter draw = draw_for_row(options_.seed, number, 0);
  if (draw[0] * 0x1p-32 >= options_.repeated_rows) return;
  if (!ends_sentence_.empty() && draw[3] % 2 == 0) {
    return_to_sentences(number, ids);
  } else {
    repeat_segment(ids, options_, draw);
  }
}

// Fresh sentences of the row's own window and returning ones take turns by the toss of a coin; what
// no longer fits is left out at the end. ids: [context_length + 1]
void Windows::return_to_sentences(std::int64_t number, std::span<std::int64_t> ids) const {
  constexpr std::size_t kShortest = 5;  // tokens: "No! No! No!" is not worth copying
  struct Sentence {
    std::size_t begin, length;
  };
  const std::vector<std::int64_t> text(ids.begin(), ids.end());
  const auto most = static_cast<std::size_t>(options_.repeat_most);
  const auto length_from = [&](std::size_t begin) {
    std::size_t end = begin;
    while (end < text.size() && end - begin < most) {
      const auto id = static_cast<std::size_t>(text[end++]);
      if (id < ends_sentence_.size() && ends_sentence_[id]) break;
    }
    return end - begin;
  };
  std::vector<Sentence> said, near;
  std::size_t read = 0;
  std::size_t written = 0;
  for (std::uint32_t place = 1; written < ids.size(); ++place) {
    near.clear();
    for (const Sentence& s : said) {
      if (s.length >= kShortest && written - s.begin <= most) near.push_back(s);
    }
    const PhiloxCounter draw = draw_for_row(options_.seed, number, place);
    const std::size_t room = ids.size() - written;
    Sentence next{written, 0};
    if (!near.empty() && draw[0] % 2 == 0) {
      const Sentence& again = near[draw[1] % near.size()];
      next.length = std::min(again.length, room);
      std::copy_n(ids.begin() + static_cast<dim_t>(again.begin), next.length,
                  ids.begin() + static_cast<dim_t>(written));
    } else {
      next.length = std::min(length_from(read), room);
      std::copy_n(text.begin() + static_cast<dim_t>(read), next.length,
                  ids.begin() + static_cast<dim_t>(written));
      read += next.length;
    }
    written += next.length;
    said.push_back(next);
  }
}

WindowBatch Windows::batch(const WindowPosition& position) const {
  require(position.epoch >= 0 && position.batch >= 0 && position.batch < batches_per_epoch(),
          "Windows: epoch {}, batch {} does not exist: an epoch has {} batches", position.epoch,
          position.batch, batches_per_epoch());
  const dim_t begin = position.batch * options_.batch;
  const dim_t rows = std::min(options_.batch, rows_per_epoch() - begin);
  const dim_t tokens = options_.context_length;
  WindowBatch result{Tensor::empty({rows, tokens}, DType::i64),
                     Tensor::empty({rows, tokens}, DType::i64)};
  std::vector<std::int64_t> ids(static_cast<std::size_t>(tokens) + 1);
  for (dim_t b = 0; b < rows; ++b) {
    row(checked_add(checked_mul(position.epoch, rows_per_epoch()), begin + b), ids);
    std::copy_n(ids.begin(), tokens, result.inputs.mutable_data_as<std::int64_t>() + b * tokens);
    std::copy_n(ids.begin() + 1, tokens,
                result.targets.mutable_data_as<std::int64_t>() + b * tokens);
  }
  return result;
}

WindowPosition Windows::after(const WindowPosition& position) const {
  if (position.batch + 1 < batches_per_epoch()) return {position.epoch, position.batch + 1};
  return {position.epoch + 1, 0};
}

}  // namespace cephalo
