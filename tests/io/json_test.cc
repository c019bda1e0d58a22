// The one reader of JSON: what it refuses before anything is made of it, and in which order.
#include "cephalo/io/json.h"

#include <gtest/gtest.h>

#include "cephalo/core/error.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::error_of;

constexpr JsonLimits kTiny = {.bytes = 200, .values = 6, .string_bytes = 10, .depth = 3};

std::string refusal(std::string_view text, const JsonLimits& limits = kTiny) {
  return error_of([&] { parse_json(text, "file", limits); });
}

TEST(JsonTest, what_is_within_every_limit_is_read) {
  EXPECT_EQ(parse_json(R"( {"a": [1, "x"]} )", "file", kTiny).dump(), R"({"a":[1,"x"]})");
  EXPECT_EQ(parse_json(R"("\"\\\u00e9")", "file", kTiny), "\"\\é");
  EXPECT_EQ(parse_json("\xEF\xBB\xBF[]", "file", kTiny).size(), 0U);  // a byte order mark
}

TEST(JsonTest, each_limit_is_refused_at_the_byte_that_passes_it) {
  EXPECT_EQ(refusal("[[[[]]]]"), "file: more than 3 objects and arrays in one another at byte 4");
  EXPECT_EQ(refusal("[[[]],[[]]]"), "");
  EXPECT_EQ(refusal("[1,2,3,4,5,6]"), "file: more than 6 names and values at byte 12");
  EXPECT_EQ(refusal(R"({"a":1,"b":2,"c":3})"), "file: more than 6 names and values at byte 18");
  EXPECT_EQ(refusal(R"(["0123456789a"])"),
            "file: a name or value of more than 10 bytes at byte 13");
  EXPECT_EQ(refusal("[123456789012]"), "file: a name or value of more than 10 bytes at byte 13");
  EXPECT_EQ(refusal(std::string(201, ' ')), "file: 201 bytes are over the limit 200");
}

TEST(JsonTest, brackets_and_quotes_inside_of_strings_do_not_count) {
  EXPECT_EQ(refusal(R"(["[[[[", "{\"[["])"), "");
  EXPECT_EQ(refusal(R"(["\\", [[]], "]"])"), "");
}

TEST(JsonTest, a_nul_does_not_end_the_text) {
  EXPECT_EQ(refusal(std::string_view("{}\0anything", 11)), "file: not valid UTF-8 JSON at byte 3");
  EXPECT_EQ(refusal(std::string_view("\0", 1)), "file: not valid UTF-8 JSON at byte 1");
  EXPECT_EQ(refusal(std::string_view("[\"a\0b\"]", 7)), "file: not valid UTF-8 JSON at byte 4");
}

TEST(JsonTest, a_mistake_before_the_limit_comes_first) {
  EXPECT_EQ(refusal("[}" + std::string(100, '[')), "file: not valid UTF-8 JSON at byte 2");
  EXPECT_EQ(refusal("[1e999]"), "file: has a number larger than any number can be");
  EXPECT_EQ(refusal("{\"a\xFF\":1}"), "file: not valid UTF-8 JSON at byte 4");
  EXPECT_EQ(refusal("{} {}"), "file: not valid UTF-8 JSON at byte 4");
}

TEST(JsonTest, two_hundred_thousand_levels_are_refused_not_followed) {
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  EXPECT_EQ(refusal(deep, kSmallJson),
            "file: more than 64 objects and arrays in one another at byte 65");
}

TEST(JsonTest, limits_hold_across_the_blocks_in_which_a_file_is_read) {
  std::string text = "[" + std::string(100'000, ' ') + "\"" + std::string(100'000, 'x') + "\"]";
  JsonLimits limits = kSmallJson;
  EXPECT_EQ(parse_json(text, "file", limits)[0].get<std::string>().size(), 100'000U);
  limits.string_bytes = 99'999;
  EXPECT_EQ(refusal(text, limits), "file: a name or value of more than 99999 bytes at byte 200002");
}

}  // namespace
}  // namespace cephalo
