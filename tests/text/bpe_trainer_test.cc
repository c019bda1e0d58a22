#include "cephalo/text/bpe_trainer.h"

#include <gtest/gtest.h>

#include "cephalo/core/error.h"
#include "tests/support/files.h"
#include "tests/support/golden.h"
#include "tests/support/tensors.h"
#include "tests/support/vocabulary.h"

namespace cephalo {
namespace {

using testing::error_of;
using testing::Folder;
using testing::golden_vocabulary;
using testing::read_golden;
using testing::write_bytes;

Bpe learned(std::string_view text, std::int64_t vocab_size, std::int64_t min_count = 1) {
  BpeTrainer trainer({.vocab_size = vocab_size, .min_count = min_count});
  trainer.add_text(text);
  return trainer.train();
}

std::string token_of(const Bpe& bpe, TokenId id) {
  return std::string(bpe.token(id));
}

TEST(BpeTrainerTest, it_learns_what_the_tokenizers_package_learns) {
  const auto golden = read_golden("tokenizer.json");
  const Bpe bpe = learned(golden.at("text").get<std::string>(), golden.at("vocab_size").get<int>(),
                          golden.at("min_count").get<int>());
  EXPECT_EQ(bpe.vocab_size(), 420);
  EXPECT_EQ(bpe.merges_txt(), golden_vocabulary().merges_txt());
  EXPECT_EQ(bpe.vocab_json(), golden_vocabulary().vocab_json());
}

TEST(BpeTrainerTest, the_most_frequent_pair_comes_first_and_of_equals_the_smaller_ids) {
  const Bpe frequent = learned("xy xy xy ab ab", 256 + 3 + 1);
  EXPECT_EQ(token_of(frequent, 256), "xy");
  EXPECT_EQ(token_of(frequent, 257), "ab");  // twice as the next two
  EXPECT_EQ(token_of(frequent, 258), " xy");
  const Bpe equal = learned("zz!yx!ab!ba", 256 + 2 + 1);
  EXPECT_EQ(token_of(equal, 256), "ab");
  EXPECT_EQ(token_of(equal, 257), "ba");
}

TEST(BpeTrainerTest, the_order_of_a_corpus_and_its_files_do_not_matter) {
  Folder folder;
  const auto text = read_golden("tokenizer.json").at("text").get<std::string>();
  BpeTrainer trainer({.vocab_size = 420, .min_count = 1});
  const std::size_t cut = text.find("\nthe then");
  write_bytes(folder / "a", text.substr(cut));
  write_bytes(folder / "b", text.substr(0, cut));
  std::int64_t done = 0;
  trainer.add_file(folder / "a", [&](std::int64_t bytes, std::int64_t all) {
    done = bytes;
    EXPECT_EQ(all, static_cast<std::int64_t>(text.size() - cut));
  });
  EXPECT_EQ(done, static_cast<std::int64_t>(text.size() - cut));
  trainer.add_file(folder / "b");
  EXPECT_EQ(trainer.train().fingerprint(), golden_vocabulary().fingerprint());
}

TEST(BpeTrainerTest, large_files_in_blocks_count_as_the_whole) {
  Folder folder;
  const auto line = read_golden("tokenizer.json").at("text").get<std::string>();
  std::string text;
  while (text.size() < (3U << 20)) text += line;
  write_bytes(folder / "text", text);
  BpeTrainer trainer({.vocab_size = 600});
  trainer.add_file(folder / "text");
  EXPECT_EQ(trainer.train().fingerprint(), learned(text, 600, 2).fingerprint());
}

TEST(BpeTrainerTest, rare_pairs_are_not_joined) {
  const Bpe bpe = learned("abc abc xyz", 4096, 2);
  EXPECT_TRUE(bpe.find("abc").has_value());
  EXPECT_FALSE(bpe.find("xy").has_value());
  EXPECT_LT(bpe.vocab_size(), 4096);  // fewer than were asked for
}

TEST(BpeTrainerTest, special_tokens_get_the_last_ids_and_no_merge_makes_them) {
  BpeTrainer trainer({.vocab_size = 300, .min_count = 1, .special_tokens = {"abab", "<end>"}});
  trainer.add_text("abababab abab abab");
  const Bpe bpe = trainer.train();
  EXPECT_EQ(bpe.special_tokens(), (std::vector<std::string>{"abab", "<end>"}));
  EXPECT_EQ(*bpe.find("<end>"), bpe.vocab_size() - 1);
}

TEST(BpeTrainerTest, a_long_word_is_counted_in_portions) {
  const Bpe bpe = learned(std::string(1'000'000, 'a'), 270);
  EXPECT_EQ(token_of(bpe, 256), "aa");
  EXPECT_EQ(bpe.decode(bpe.encode("aaaaa")), "aaaaa");
}

TEST(BpeTrainerTest, sizes_that_cannot_be_are_errors) {
  EXPECT_EQ(
      error_of([] { BpeTrainer({.vocab_size = 256}); }),
      "BpeTrainer: vocab_size (256) must be in [257, 2147483647]: 256 bytes and 1 special tokens");
  EXPECT_EQ(error_of([] { BpeTrainer({.min_count = 0}); }),
            "BpeTrainer: min_count (0) must be at least 1");
  EXPECT_EQ(learned("", 300).vocab_size(), 257);
}

}  // namespace
}  // namespace cephalo
