#include "cephalo/text/words.h"

#include <gtest/gtest.h>

#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using Words = std::vector<std::string>;

TEST(WordsTest, text_is_split_at_spaces_and_around_punctuation) {
  EXPECT_EQ(split_words("The cat sat on the mat"),
            (Words{"The", "cat", "sat", "on", "the", "mat"}));
  EXPECT_EQ(split_words("Hello, world. Is this-- a test?"),
            (Words{"Hello", ",", "world", ".", "Is", "this", "--", "a", "test", "?"}));
  EXPECT_EQ(split_words("  \"It's_fine\"\n(so-so) "),
            (Words{"\"", "It", "'", "s", "_", "fine", "\"", "(", "so-so", ")"}));
  EXPECT_EQ(split_words(" \t\n"), Words{});
  EXPECT_EQ(split_words("na\xC3\xAFve caf\xC3\xA9"), (Words{"na\xC3\xAFve", "caf\xC3\xA9"}));
}

TEST(WordsTest, a_vocabulary_is_the_distinct_words_sorted_by_code_point) {
  const Words pieces = split_words("the The cat zebra \xC3\xA9t\xC3\xA9 cat");
  const WordVocabulary vocabulary(pieces);
  EXPECT_EQ(vocabulary.words(), (Words{"The", "cat", "the", "zebra", "\xC3\xA9t\xC3\xA9"}));
  const Tensor ids = vocabulary.encode(pieces);
  EXPECT_EQ(ids.dtype(), DType::i64);
  EXPECT_EQ(ids.at({0}), 2.0);
  EXPECT_EQ(ids.at({5}), 1.0);
  EXPECT_EQ(testing::error_of([&] { vocabulary.encode({"dog"}); }),
            "vocabulary: \"dog\" is not in it");
}

}  // namespace
}  // namespace cephalo
