// The one reader of JSON: what it refuses before anything is made of it, and in which order.
#include "cephalo/io/json.h"

#include <gtest/gtest.h>

#include <limits>

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
  EXPECT_EQ(parse_json(R"("\"\\\u00e9")", "file", kTiny).as_string(), "\"\\é");
  EXPECT_EQ(parse_json("\xEF\xBB\xBF[]", "file", kTiny).elements().size(),
            0U);  // a byte order mark
}

TEST(JsonTest, each_limit_is_refused_at_the_byte_that_passes_it) {
  EXPECT_EQ(refusal("[[[[]]]]"), "file: objects and arrays nested more than 3 deep at byte 4");
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
  EXPECT_EQ(refusal("[1e999]"), "file: has a number that is out of range");
  EXPECT_EQ(refusal("{\"a\xFF\":1}"), "file: not valid UTF-8 JSON at byte 4");
  EXPECT_EQ(refusal("{} {}"), "file: not valid UTF-8 JSON at byte 4");
}

TEST(JsonTest, two_hundred_thousand_levels_are_refused_not_followed) {
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  EXPECT_EQ(refusal(deep, kSmallJson),
            "file: objects and arrays nested more than 64 deep at byte 65");
}

TEST(JsonTest, limits_hold_across_the_blocks_in_which_a_file_is_read) {
  std::string text = "[" + std::string(100'000, ' ') + "\"" + std::string(100'000, 'x') + "\"]";
  JsonLimits limits = kSmallJson;
  EXPECT_EQ(parse_json(text, "file", limits).elements().front().as_string().size(), 100'000U);
  limits.string_bytes = 99'999;
  EXPECT_EQ(refusal(text, limits), "file: a name or value of more than 99999 bytes at byte 200002");
}

TEST(JsonTest, members_are_of_their_type_and_in_their_range_or_named) {
  const Json json = parse_json(
      R"({"half": 1.5, "minus": -1, "much": 9007199254740993, "text": "12", "list": ["a", 1],
          "fine": 9007199254740992, "truth": 1, "none": null, "int": 2147483648})",
      "file");
  const JsonMembers members(json, "file: state");
  std::int64_t whole = 0;
  int narrow = 0;
  double real = 0.0;
  bool truth = false;
  std::string text;
  std::vector<std::string> list;
  const auto reading = [&](const char* key, auto& to) {
    return error_of([&] { members(key, to); });
  };
  const std::string range = " must be a whole number from 0 to 9007199254740992";
  EXPECT_EQ(reading("half", whole), "file: state: half: 1.5" + range);
  EXPECT_EQ(reading("minus", whole), "file: state: minus: -1" + range);
  EXPECT_EQ(reading("much", whole), "file: state: much: 9007199254740993" + range);
  EXPECT_EQ(reading("text", whole), "file: state: text: \"12\"" + range);
  EXPECT_EQ(reading("gone", whole), "file: state: gone: is missing");
  EXPECT_EQ(reading("int", narrow),
            "file: state: int: 2147483648 must be a whole number from 0 to 2147483647");
  EXPECT_EQ(reading("text", real), "file: state: text: \"12\" must be a number");
  EXPECT_EQ(reading("truth", truth), "file: state: truth: 1 must be true or false");
  EXPECT_EQ(reading("none", text), "file: state: none: null must be a string");
  EXPECT_EQ(reading("list", list), "file: state: list: [\"a\",1] must be a list of strings");
  EXPECT_EQ(reading("fine", whole), "");
  EXPECT_EQ(whole, std::int64_t{1} << 53);
  EXPECT_EQ(error_of([&] { JsonMembers(json.at("list"), "file: list"); }),
            "file: list: is not a JSON object");
}

TEST(JsonTest, a_value_is_written_in_one_line_or_in_many) {
  Json json = {{"name", "x"}, {"list", std::vector<int>{1, 2}}, {"inside", {{"half", 0.5}}}};
  json["none"] = nullptr;
  json["empty"] = Json::array();
  json["truth"] = true;
  EXPECT_EQ(
      json.dump(),
      R"({"name":"x","list":[1,2],"inside":{"half":0.5},"none":null,"empty":[],"truth":true})");
  EXPECT_EQ(json.dump({.indent = 1}), R"({
 "name": "x",
 "list": [
  1,
  2
 ],
 "inside": {
  "half": 0.5
 },
 "none": null,
 "empty": [],
 "truth": true
})");
}

TEST(JsonTest, numbers_are_written_with_the_digits_that_they_need) {
  const auto written = [](const Json& number) { return number.dump(); };
  EXPECT_EQ(written(std::int64_t{-7}), "-7");
  EXPECT_EQ(written(UINT64_MAX), "18446744073709551615");
  EXPECT_EQ(written(1.0), "1.0");
  EXPECT_EQ(written(0.1), "0.1");
  EXPECT_EQ(written(0.1F), "0.10000000149011612");
  EXPECT_EQ(written(1e-5), "1e-05");
  EXPECT_EQ(written(1e300), "1e+300");
  EXPECT_EQ(written(std::numeric_limits<double>::infinity()), "null");
  EXPECT_EQ(written(std::numeric_limits<double>::quiet_NaN()), "null");
}

TEST(JsonTest, what_is_not_utf8_is_replaced_or_refused) {
  EXPECT_EQ(Json("\"\n\xC3\xA9").dump(), "\"\\\"\\n\xC3\xA9\"");
  EXPECT_EQ(Json("\xC3\xA9").dump({.ascii = true}), "\"\\u00e9\"");
  EXPECT_EQ(Json("a\xFF").dump({.replace = true}), "\"a\xEF\xBF\xBD\"");
  EXPECT_EQ(error_of([] { quoted_json("a\xFF", "file"); }), "file: a\xFF: is not valid UTF-8");
}

TEST(JsonTest, members_of_a_text_come_by_name_and_the_last_of_a_name_stays) {
  EXPECT_EQ(
      parse_json(R"({"b": 1, "a": {"d": 2, "c": [{"f": 3, "e": 4}]}, "b": 5})", "file").dump(),
      R"({"a":{"c":[{"e":4,"f":3}],"d":2},"b":5})");
}

TEST(JsonTest, members_are_found_replaced_and_taken_out) {
  Json json = {{"a", 1}, {"b", 2}};
  json["a"] = "x";
  json.erase("b");
  EXPECT_EQ(json.dump(), R"({"a":"x"})");
  EXPECT_TRUE(json.contains("a"));
  EXPECT_EQ(json.find("b"), nullptr);
  EXPECT_EQ(error_of([&] { static_cast<void>(json.at("b")); }), "JSON: b: is missing");
}

}  // namespace
}  // namespace cephalo
