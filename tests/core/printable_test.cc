// What of a stranger's text reaches a terminal.
#include "cephalo/core/printable.h"

#include <gtest/gtest.h>

namespace cephalo {
namespace {

TEST(PrintableTest, control_characters_and_those_that_turn_the_direction_are_question_marks) {
  EXPECT_EQ(printable("plain \"text\" é 日本 😀"), "plain \"text\" é 日本 😀");
  EXPECT_EQ(printable("a\x1b[31m\n\t\x7f"), "a?[31m???");
  EXPECT_EQ(printable("\u0085\u009b"), "??");
  for (const char* mark : {"\u061C", "\u200E", "\u200F", "\u2028", "\u2029", "\u202A", "\u202B",
                           "\u202C", "\u202D", "\u202E", "\u2066", "\u2067", "\u2068", "\u2069"}) {
    EXPECT_EQ(printable(std::string("a") + mark + "b"), "a?b");
  }
  // Their neighbours stay: a dash, an ellipsis, a word joiner.
  EXPECT_EQ(printable("\u2014 \u2026 \u2060"), "\u2014 \u2026 \u2060");
  EXPECT_EQ(printable("\xE2\x80"), "\xE2\x80");  // cut in the middle of a character
}

TEST(PrintableTest, a_message_shows_the_beginning_of_a_long_text) {
  EXPECT_EQ(to_string(shown("wte\u202E.weight")), "wte?.weight");
  EXPECT_EQ(to_string(shown(std::string(100, 'a'))), std::string(100, 'a'));
  EXPECT_EQ(to_string(shown(std::string(5'000'000, 'a'))),
            std::string(100, 'a') + "... (5000000 bytes)");
  // Cut between characters.
  EXPECT_EQ(to_string(shown(std::string(99, 'a') + "日本")),
            std::string(99, 'a') + "... (105 bytes)");
  EXPECT_EQ(format_text("{}", shown("name")), "name");
}

TEST(PrintableTest, a_comma_stands_before_every_three_digits) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(1000), "1,000");
  EXPECT_EQ(with_commas(123456), "123,456");
  EXPECT_EQ(with_commas(1234567), "1,234,567");
}

}  // namespace
}  // namespace cephalo
