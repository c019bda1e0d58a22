#include "cephalo/view/terminal.h"

#include <gtest/gtest.h>

#include <string>

#include "cephalo/view/colour.h"

namespace cephalo {
namespace {

const TerminalStyle kPlain{ColourDepth::none, true, 80};
const TerminalStyle kAscii{ColourDepth::none, false, 80};
const TerminalStyle kDirect{ColourDepth::direct, true, 80};

Tensor some_cells() {
  return Tensor::of({{1.0, 0.0, 0.0}, {0.3, 0.7, 0.0}, {0.0, 0.05, 0.95}});
}

TEST(TerminalTest, cividis_grows_lighter_from_dark_blue_to_yellow) {
  EXPECT_EQ(cividis(0.0), (Colour{0, 32, 77}));
  EXPECT_EQ(cividis(1.0), (Colour{255, 234, 70}));
  EXPECT_EQ(cividis(-1.0), cividis(0.0));
  EXPECT_EQ(cividis(2.0), cividis(1.0));
  double last = -1.0;
  for (int step = 0; step <= 100; ++step) {
    const Colour c = cividis(step / 100.0);
    const double light = 0.2126 * c.red + 0.7152 * c.green + 0.0722 * c.blue;
    EXPECT_GE(light, last);
    last = light;
  }
}

TEST(TerminalTest, signs_are_blue_and_orange_around_a_neutral_middle) {
  EXPECT_EQ(signed_colour(-2.0), signed_colour(-1.0));
  EXPECT_EQ(signed_colour(2.0), signed_colour(1.0));
  EXPECT_EQ(signed_colour(-0.0), signed_colour(0.0));
  for (int step = 1; step <= 10; ++step) {
    const Colour less = signed_colour(-step / 10.0);
    const Colour more = signed_colour(step / 10.0);
    EXPECT_GT(less.blue, less.red);
    EXPECT_GT(more.red, more.blue);
    // The further from 0, the further from the middle's colour.
    EXPECT_GT(less.blue, signed_colour(-(step - 1) / 10.0).blue);
    EXPECT_GT(more.red, signed_colour((step - 1) / 10.0).red);
  }
  EXPECT_EQ(indexed_signed(0.0), 237);
  EXPECT_EQ(indexed_signed(-9.0), indexed_signed(-1.0));
  EXPECT_NE(indexed_signed(-1.0), indexed_signed(1.0));
  EXPECT_EQ(painted_signed("x", 1.0, kPlain), "x");
}

TEST(TerminalTest, ink_can_be_read_on_every_weight) {
  EXPECT_EQ(ink_on(cividis(0.0)), (Colour{255, 255, 255}));
  EXPECT_EQ(ink_on(cividis(1.0)), (Colour{0, 0, 0}));
}

// Colours 16 to 231 are a cube of six levels, 232 to 255 greys.
double lightness(int index) {
  constexpr double kLevels[] = {0, 95, 135, 175, 215, 255};
  if (index >= 232) return 8.0 + 10.0 * (index - 232);
  const int place = index - 16;
  return 0.2126 * kLevels[place / 36] + 0.7152 * kLevels[place / 6 % 6] +
         0.0722 * kLevels[place % 6];
}

TEST(TerminalTest, the_map_in_256_colours_grows_lighter_too) {
  for (int step = 1; step < 10; ++step) {
    EXPECT_GT(lightness(indexed_cividis(step / 9.0)), lightness(indexed_cividis((step - 1) / 9.0)));
  }
}

TEST(TerminalTest, hidden_cells_are_empty_and_a_weight_of_0_is_not) {
  EXPECT_EQ(draw_map(some_cells(), kPlain), (std::vector<std::string>{"█  ", "▒▓ ", "·░█"}));
  EXPECT_EQ(draw_map(some_cells(), kAscii), (std::vector<std::string>{"@  ", "+# ", ".:@"}));
}

TEST(TerminalTest, without_colours_there_are_no_escape_codes) {
  std::string all = painted("x", 1.0, kPlain) + bold("x", kPlain) + legend(kPlain);
  for (const std::string& line : draw_map(some_cells(), kPlain)) all += line;
  EXPECT_EQ(all.find('\x1b'), std::string::npos);
}

TEST(TerminalTest, with_colours_a_line_holds_two_rows) {
  const auto lines = draw_map(some_cells(), kDirect);
  ASSERT_EQ(lines.size(), 2U);
  // Row 0 above row 1; then row 1 alone, below what is hidden.
  EXPECT_EQ(lines[0],
            "\x1b[38;2;255;234;70m\x1b[48;2;78;86;108m▀\x1b[0m\x1b[38;2;175;164;114m▄\x1b[0m ");
  EXPECT_NE(lines[1].find("▀"), std::string::npos);
  const auto indexed = draw_map(some_cells(), {ColourDepth::indexed, true, 80});
  EXPECT_EQ(indexed[0].rfind("\x1b[38;5;", 0), 0U);
}

TEST(TerminalTest, a_bar_has_the_length_of_its_share) {
  EXPECT_EQ(draw_bar(0.5, 4, kPlain), "██");
  EXPECT_EQ(draw_bar(0.53125, 4, kPlain), "██▏");
  EXPECT_EQ(draw_bar(0.5, 4, kAscii), "##");
  EXPECT_EQ(draw_bar(2.0, 3, kPlain), "███");
  EXPECT_EQ(draw_bar(0.0, 3, kPlain), "");
}

}  // namespace
}  // namespace cephalo
