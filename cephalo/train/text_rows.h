#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "cephalo/train/token_file.h"

namespace cephalo {

struct TextRowsOptions {
  std::int64_t tokens = 0;  // of a row: it is read into tokens + 1 ids
  bool shuffle = true;      // else the windows in their order
  std::uint64_t seed = 0;
  std::optional<std::int64_t> first_token = {};  // every row begins with it: <|endoftext|>, say
  // So many of the rows are a segment of text said again and again, from which a model learns to
  // look for what came after the same word before.
  double repeat_share = 0.0;
  std::int64_t repeat_min = 20;  // tokens of a segment
  std::int64_t repeat_max = 100;
};

// Rows of a text: windows side by side, every one once before any comes again, in an order that is
// new for each round, as are the places where the text is cut. A row is a function of its number
// and the seed: there is nothing to save.
class TextRows {
 public:
  TextRows(TokenStream stream, const TextRowsOptions& options);

  std::int64_t windows() const { return windows_; }  // in one round
  // ids: [tokens + 1]
  void operator()(std::int64_t number, std::span<std::int64_t> ids) const;

 private:
  void read_around(std::int64_t begin, std::span<std::int64_t> ids) const;

  TokenStream stream_;
  TextRowsOptions options_;
  std::int64_t windows_;
};

// The place of `index` in a random order of 0 .. count: a permutation that needs no memory.
std::int64_t shuffled_place(std::uint64_t seed, std::int64_t index, std::int64_t count);

}  // namespace cephalo
