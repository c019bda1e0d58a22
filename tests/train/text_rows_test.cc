#include "cephalo/train/text_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "cephalo/core/error.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::error_of;
using testing::Folder;
using testing::write_bytes;
using Ids = std::vector<std::int64_t>;

class TextRowsTest : public ::testing::Test {
 protected:
  // Tokens 0, 1, 2 … `count`, in a file.
  std::shared_ptr<const TokenFile> counting(std::int32_t count, std::int64_t vocab_size = 60000) {
    const std::string path = folder_ / "tokens.bin";
    TokenFileWriter writer(path, vocab_size);
    std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
    std::iota(ids.begin(), ids.end(), 0);
    writer.add(std::span(ids).first(ids.size() / 2));
    writer.add(std::span(ids).subspan(ids.size() / 2));
    writer.finish();
    return std::make_shared<TokenFile>(path, vocab_size);
  }
  static Ids row(const TextRows& rows, std::int64_t number, std::int64_t tokens) {
    Ids ids(static_cast<std::size_t>(tokens) + 1);
    rows(number, ids);
    return ids;
  }

  Folder folder_;
};

TEST_F(TextRowsTest, token_files_hold_ids_of_either_width) {
  for (const std::int64_t vocab_size : {1000, 65536, 65537, 100000}) {
    const auto file = counting(1000, vocab_size);
    EXPECT_EQ(file->tokens(), 1000);
    Ids ids(7);
    file->read(993, ids);
    EXPECT_EQ(ids, (Ids{993, 994, 995, 996, 997, 998, 999}));
    EXPECT_EQ(error_of([&] { file->read(994, ids); }),
              file->path() + ": has 1000 tokens, 7 from 994 on are asked for");
  }
}

TEST_F(TextRowsTest, token_files_that_are_none_are_refused) {
  const std::string path = folder_ / "odd.bin";
  write_bytes(path, "123");
  EXPECT_EQ(error_of([&] { TokenFile file(path, 10); }),
            path + ": has 3 bytes, not a multiple of 2: no file of tokens");
  write_bytes(path, std::string("\x01\x00\x0a\x00", 4));
  Ids ids(2);
  EXPECT_EQ(error_of([&] { TokenFile(path, 10).read(0, ids); }),
            path + ": token 10 at place 1 is outside the vocabulary of 10");
}

TEST_F(TextRowsTest, a_stream_joins_parts) {
  const TokenStream stream(counting(100), {{10, 12}, {20, 20}, {50, 53}});
  EXPECT_EQ(stream.tokens(), 5);
  Ids ids(5);
  stream.read(0, ids);
  EXPECT_EQ(ids, (Ids{10, 11, 50, 51, 52}));
  Ids two(2);
  stream.read(1, two);
  EXPECT_EQ(two, (Ids{11, 50}));
  EXPECT_NE(error_of([&] { stream.read(4, two); }), "");
}

TEST_F(TextRowsTest, shuffled_places_are_a_permutation) {
  for (const std::int64_t count : {1, 2, 3, 7, 64, 1000}) {
    std::set<std::int64_t> places;
    std::int64_t fixed = 0;
    for (std::int64_t k = 0; k < count; ++k) {
      const std::int64_t place = shuffled_place(5, k, count);
      EXPECT_GE(place, 0);
      EXPECT_LT(place, count);
      places.insert(place);
      fixed += place == k ? 1 : 0;
    }
    EXPECT_EQ(static_cast<std::int64_t>(places.size()), count);
    EXPECT_LE(fixed, 8) << count;
  }
}

TEST_F(TextRowsTest, in_order_rows_are_the_windows) {
  const TextRows rows(TokenStream(counting(11), {{0, 11}}), {.tokens = 5, .shuffle = false});
  EXPECT_EQ(rows.windows(), 2);
  EXPECT_EQ(row(rows, 0, 5), (Ids{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(row(rows, 1, 5), (Ids{5, 6, 7, 8, 9, 10}));
  EXPECT_EQ(row(rows, 2, 5), row(rows, 0, 5));
}

TEST_F(TextRowsTest, a_round_reads_every_token_once_and_the_next_in_another_order) {
  const TextRows rows(TokenStream(counting(100), {{0, 100}}), {.tokens = 10, .seed = 3});
  ASSERT_EQ(rows.windows(), 10);
  Ids orders[2];
  for (int round = 0; round < 2; ++round) {
    std::set<std::int64_t> seen;
    for (int k = 0; k < 10; ++k) {
      const Ids ids = row(rows, 10 * round + k, 10);
      orders[round].push_back(ids[0]);
      seen.insert(ids.begin(), ids.end() - 1);
      for (std::size_t t = 1; t < ids.size(); ++t) EXPECT_EQ(ids[t], (ids[t - 1] + 1) % 100);
    }
    EXPECT_EQ(seen.size(), 100U);
  }
  EXPECT_NE(orders[0], orders[1]);
}

TEST_F(TextRowsTest, a_row_begins_with_the_first_token) {
  const TextRows rows(TokenStream(counting(50), {{0, 50}}),
                      {.tokens = 4, .shuffle = false, .first_token = 77});
  EXPECT_EQ(row(rows, 1, 4), (Ids{77, 4, 5, 6, 7}));
}

TEST_F(TextRowsTest, a_share_of_the_rows_repeats_a_segment) {
  constexpr std::int64_t kTokens = 64;
  const TextRows rows(TokenStream(counting(20000), {{0, 20000}}), {.tokens = kTokens,
                                                                   .seed = 1,
                                                                   .first_token = 59999,
                                                                   .repeat_share = 0.2,
                                                                   .repeat_min = 5,
                                                                   .repeat_max = 9});
  int repeated = 0;
  std::set<std::size_t> lengths;
  for (int number = 0; number < 2000; ++number) {
    const Ids ids = row(rows, number, kTokens);
    EXPECT_EQ(ids[0], 59999);
    const auto again = std::find(ids.begin() + 2, ids.end(), ids[1]);
    if (again == ids.end()) continue;
    ++repeated;
    const auto length = static_cast<std::size_t>(again - ids.begin()) - 1;
    lengths.insert(length);
    for (std::size_t t = 1 + length; t < ids.size(); ++t) ASSERT_EQ(ids[t], ids[t - length]);
  }
  EXPECT_NEAR(repeated, 400, 60);
  EXPECT_EQ(lengths, (std::set<std::size_t>{5, 6, 7, 8, 9}));
}

TEST_F(TextRowsTest, a_text_shorter_than_a_row_is_an_error) {
  EXPECT_EQ(error_of([&] {
              TextRows(TokenStream(counting(5), {{0, 5}}), {.tokens = 5});
            }),
            "TextRows: the text has 5 tokens, a row needs 6; a shorter context_length or more text "
            "helps");
}

}  // namespace
}  // namespace cephalo
