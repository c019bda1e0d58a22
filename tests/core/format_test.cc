#include "cephalo/core/format.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cephalo/core/shape.h"

namespace cephalo {
namespace {

TEST(FormatTest, numbers_and_texts_are_written_as_fmt_writes_them) {
  EXPECT_EQ(format_text("{} {} {} {}", true, 'c', -3, std::uint64_t{18446744073709551615U}),
            "true c -3 18446744073709551615");
  EXPECT_EQ(format_text("{} {}", 0.1F, 0.1), "0.1 0.1");  // the shortest digits of each type
  EXPECT_EQ(format_text("{:.3g}|{:>6}|{:<4}|", 2.0 / 3.0, 42, "ab"), "0.667|    42|ab  |");
  EXPECT_EQ(format_text("{:>{}}", "right", 8), "   right");
  EXPECT_EQ(format_text("{0} x {0} = {1}", 3, 9), "3 x 3 = 9");
  EXPECT_EQ(format_text("{{}}"), "{}");
}

TEST(FormatTest, what_has_a_to_string_is_written_by_it) {
  EXPECT_EQ(format_text("q is {}", Shape{2, 3}), "q is [2, 3]");
}

TEST(FormatTest, ranges_are_joined) {
  EXPECT_EQ(joined(std::vector<std::string>{"a", "b"}, ", "), "a, b");
  EXPECT_EQ(joined(std::vector<double>{0.5, 1.0 / 3.0}, "; ", "{:.2f}"), "0.50; 0.33");
  EXPECT_EQ(joined(std::vector<int>{}, ", "), "");
}

TEST(FormatTest, texts_are_appended) {
  std::string text = "loss ";
  append_text(text, "{:.2f}", 3.14159);
  EXPECT_EQ(text, "loss 3.14");
}

}  // namespace
}  // namespace cephalo
