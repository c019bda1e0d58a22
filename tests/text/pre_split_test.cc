#include "cephalo/text/pre_split.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

namespace cephalo {
namespace {

using Pieces = std::vector<std::string>;

Pieces pieces_of(std::string_view text) {
  Pieces pieces;
  while (!text.empty()) {
    pieces.emplace_back(text.substr(0, piece_bytes(text)));
    text.remove_prefix(pieces.back().size());
  }
  return pieces;
}

std::string utf8(char32_t c) {
  const auto tail = [&](int shift) { return static_cast<char>(0x80U | (c >> shift & 0x3FU)); };
  if (c < 0x80) return {static_cast<char>(c)};
  if (c < 0x800) return {static_cast<char>(0xC0U | c >> 6), tail(0)};
  if (c < 0x10000) return {static_cast<char>(0xE0U | c >> 12), tail(6), tail(0)};
  return {static_cast<char>(0xF0U | c >> 18), tail(12), tail(6), tail(0)};
}

TEST(PreSplitTest, words_take_the_space_before_them) {
  EXPECT_EQ(pieces_of("Hello, world 12"), (Pieces{"Hello", ",", " world", " 12"}));
  EXPECT_EQ(pieces_of("a1!b"), (Pieces{"a", "1", "!", "b"}));
  EXPECT_EQ(pieces_of(" ?!x"), (Pieces{" ?!", "x"}));
}

TEST(PreSplitTest, contractions_are_split_off_in_small_letters_only) {
  EXPECT_EQ(pieces_of("it's I'll we've you're I'm he'd can't"),
            (Pieces{"it", "'s", " I", "'ll", " we", "'ve", " you", "'re", " I", "'m", " he", "'d",
                    " can", "'t"}));
  EXPECT_EQ(pieces_of("IT'S 'x"), (Pieces{"IT", "'", "S", " '", "x"}));
  EXPECT_EQ(pieces_of("'sit"), (Pieces{"'s", "it"}));
  EXPECT_EQ(pieces_of("!'s"), (Pieces{"!'", "s"}));
  EXPECT_EQ(pieces_of("'"), (Pieces{"'"}));
}

TEST(PreSplitTest, a_run_of_spaces_leaves_its_last_to_what_follows) {
  EXPECT_EQ(pieces_of("a   b"), (Pieces{"a", "  ", " b"}));
  EXPECT_EQ(pieces_of("a\n\nb"), (Pieces{"a", "\n", "\n", "b"}));
  EXPECT_EQ(pieces_of("a \n b  "), (Pieces{"a", " \n", " b", "  "}));
  EXPECT_EQ(pieces_of("a\xC2\xA0\xE3\x80\x80"
                      "b"),
            (Pieces{"a", "\xC2\xA0", "\xE3\x80\x80", "b"}));
  EXPECT_EQ(pieces_of(" "), (Pieces{" "}));
}

TEST(PreSplitTest, a_broken_byte_is_a_character_as_u_fffd) {
  EXPECT_EQ(pieces_of("a\xFF\xFE!b"), (Pieces{"a", "\xFF\xFE!", "b"}));
  EXPECT_EQ(pieces_of(" \xE2\x82x"), (Pieces{" \xE2\x82", "x"}));
  EXPECT_EQ(pieces_of("\xED\xA0\x80"), (Pieces{"\xED\xA0\x80"}));  // a surrogate
  EXPECT_EQ(pieces_of("\xC1\x81"), (Pieces{"\xC1\x81"}));          // an overlong A
  EXPECT_EQ(first_character("\xF4\x90\x80\x80").bytes, 1);         // over U+10FFFF
}

TEST(PreSplitTest, every_code_point_has_the_class_of_unicode_16) {
  std::array<int, 4> count{};
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    const Character found = first_character(utf8(c));
    ASSERT_EQ(found.bytes, utf8(c).size());
    ++count[static_cast<std::size_t>(found.kind)];
  }
  // As tools/make_unicode_classes.py counts them, less its 2,048 surrogates.
  EXPECT_EQ(count, (std::array<int, 4>{141028, 1911, 25, 971148 - 2048}));
  const auto kind = [](char32_t c) { return first_character(utf8(c)).kind; };
  for (const char32_t c : std::u32string_view(U"aZéßЖ世あأनก𝒳ªǅʰ")) {
    EXPECT_EQ(kind(c), CharacterClass::letter) << static_cast<unsigned>(c);
  }
  for (const char32_t c : std::u32string_view(U"09١१Ⅷ½²⑨")) {
    EXPECT_EQ(kind(c), CharacterClass::number) << static_cast<unsigned>(c);
  }
  for (const char32_t c : std::u32string_view(U"_$\u0301\u0903€🙂\u200B\u200D\uFFFD\u001C")) {
    EXPECT_EQ(kind(c), CharacterClass::other) << static_cast<unsigned>(c);
  }
}

}  // namespace
}  // namespace cephalo
