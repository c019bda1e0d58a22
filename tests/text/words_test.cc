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

TEST(WordsTest, white_space_is_pythons) {
  EXPECT_EQ(split_words("a\xC2\xA0"
                        "b\x1C"
                        "c\xE3\x80\x80"),
            (Words{"a", "b", "c"}));
}

using Ids = std::vector<TokenId>;
constexpr std::string_view kText = "\"It's the last he painted, you know,\" Mrs. Gisburn said.";

TEST(WordTokenizerTest, v1_reads_and_writes_the_words_of_its_text) {
  const WordTokenizer tokenizer(kText, WordTokenizer::Version::v1);
  EXPECT_EQ(tokenizer.words(), (Words{"\"", "'", ",", ".", "Gisburn", "It", "Mrs", "he", "know",
                                      "last", "painted", "s", "said", "the", "you"}));
  EXPECT_EQ(tokenizer.encode("It's you."), (Ids{5, 1, 11, 14, 3}));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(kText)),
            "\" It' s the last he painted, you know,\" Mrs. Gisburn said.");
  EXPECT_EQ(testing::error_of([&] { tokenizer.encode("Hello, you"); }),
            "encode: \"Hello\" is not in the vocabulary of 15 words");
}

TEST(WordTokenizerTest, v2_knows_the_end_of_a_text_and_what_it_does_not_know) {
  const WordTokenizer tokenizer(kText, WordTokenizer::Version::v2);
  EXPECT_EQ(tokenizer.vocab_size(), 17);
  EXPECT_EQ(tokenizer.words()[15], "<|endoftext|>");
  EXPECT_EQ(tokenizer.words()[16], "<|unk|>");
  const Ids ids = tokenizer.encode("Hello, you <|endoftext|> the last; <|unk|>");
  EXPECT_EQ(ids, (Ids{16, 2, 14, 15, 13, 9, 16, 16}));
  EXPECT_EQ(tokenizer.decode(ids), "<|unk|>, you <|endoftext|> the last <|unk|> <|unk|>");
}

TEST(WordTokenizerTest, v2_also_joins_colons) {
  EXPECT_EQ(WordTokenizer("a : b ;", WordTokenizer::Version::v1).decode(Ids{2, 0, 3, 1}),
            "a : b ;");
  EXPECT_EQ(WordTokenizer("a : b ;", WordTokenizer::Version::v2).decode(Ids{2, 0, 3, 1}), "a: b;");
}

TEST(WordTokenizerTest, A14_ids_outside_of_the_vocabulary) {
  const WordTokenizer tokenizer(kText, WordTokenizer::Version::v1);
  EXPECT_EQ(testing::error_of([&] {
              tokenizer.decode(Ids{0, 15});
            }),
            "decode: id 15 at position 1 is outside the vocabulary of 15");
}

}  // namespace
}  // namespace cephalo
