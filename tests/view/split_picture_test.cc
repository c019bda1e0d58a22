#include "cephalo/view/split_picture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "cephalo/learn/ladder.h"
#include "cephalo/view/colour.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::normal;

const TerminalStyle kPlain{ColourDepth::none, true, 80};
const TerminalStyle kAscii{ColourDepth::none, false, 80};

// GPT-2 Small on six words.
HeadSplit gpt2() {
  return {.q_tokens = 6,
          .kv_tokens = 6,
          .num_heads = 12,
          .num_kv_heads = 12,
          .head_dim = 64,
          .v_dim = 64,
          .tokens = {"The", "cat", "sat", "on", "the", "mat"}};
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

dim_t columns_of(const std::string& line) {
  return std::count_if(line.begin(), line.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; });
}

// The only line with these words.
std::string line_with(const std::vector<std::string>& lines, const std::string& words) {
  std::string found;
  for (const std::string& line : lines) {
    if (line.find(words) == std::string::npos) continue;
    EXPECT_EQ(found, "") << words;
    found = line;
  }
  return found;
}

dim_t count_of(const std::string& text, const std::string& part) {
  dim_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(SplitPictureTest, a_bar_is_cut_into_as_many_pieces_as_there_are_heads) {
  const auto lines = lines_of(draw_split(gpt2(), kAscii));
  EXPECT_EQ(lines.front(), "768 = 12 heads x 64");
  std::vector<std::string> bars;
  for (const std::string& line : lines) {
    if (line.starts_with("      The |")) bars.push_back(line);
  }
  ASSERT_EQ(bars.size(), 4U);  // whole, cut, as matrices of heads, put together
  EXPECT_NE(bars[0].find("-- 768 --"), std::string::npos) << bars[0];
  EXPECT_EQ(std::count(bars[1].begin(), bars[1].end(), '|'), 13);
  EXPECT_EQ(bars[0].size(), bars[1].size());
  EXPECT_EQ(bars[1], bars[3]);
  for (int head = 0; head < 12; ++head) {
    EXPECT_NE(bars[1].find(" " + std::to_string(head) + " "), std::string::npos) << bars[1];
  }
}

TEST(SplitPictureTest, the_bracket_ends_below_the_two_numbers_that_cancel) {
  const auto lines = lines_of(draw_split(gpt2(), kAscii));
  const struct {
    const char* product;
    const char* inner;
    const char* words;
  } kinds[] = {{"(1, 12, 6, 64) @ (1, 12, 64, 6) = (1, 12, 6, 6)", "64", "inner axis 64:"},
               {"(1, 12, 6, 6) @ (1, 12, 6, 64) = (1, 12, 6, 64)", "6", "inner axis 6:"}};
  for (const auto& kind : kinds) {
    const std::string product = line_with(lines, kind.product);
    const std::string bracket = line_with(lines, kind.words);
    const std::size_t left = bracket.find('`');
    const std::size_t right = bracket.find('\'');
    ASSERT_LT(right, product.size());
    EXPECT_EQ(product.substr(left + 1, 1), ")") << product;
    EXPECT_EQ(product.substr(right + 1, 3), ", 6") << product;
    const std::string inner = kind.inner;
    EXPECT_EQ(product.substr(left + 1 - inner.size(), inner.size()), inner);
    EXPECT_EQ(product.substr(right + 1 - inner.size(), inner.size()), inner);
  }
}

TEST(SplitPictureTest, two_axes_change_places) {
  const std::string text = draw_split(gpt2(), kPlain);
  EXPECT_NE(text.find("(1,  6, 12, 64)  batch, tokens, heads, head_dim"), std::string::npos);
  EXPECT_NE(text.find("(1, 12,  6, 64)  batch, heads, tokens, head_dim"), std::string::npos);
  EXPECT_NE(text.find("axes 1 and 2 change places"), std::string::npos);
  HeadSplit bare = gpt2();
  bare.batch = 0;
  EXPECT_NE(draw_split(bare, kPlain).find("axes 0 and 1 change places"), std::string::npos);
}

TEST(SplitPictureTest, any_size_fits_the_terminal) {
  for (const dim_t heads : {1, 2, 5, 25, 96, 100000}) {
    for (const dim_t tokens : {1, 3, 1000}) {
      for (const dim_t width : {60, 80, 132}) {
        HeadSplit split = gpt2();
        split.num_heads = split.num_kv_heads = heads;
        split.q_tokens = split.kv_tokens = tokens;
        split.tokens = {"Überraschung"};
        for (const std::string& line :
             lines_of(draw_split(split, {ColourDepth::none, true, width}))) {
          const bool drawn = line.find("│") != std::string::npos;
          if (drawn) {
            EXPECT_LE(columns_of(line), std::max<dim_t>(width, 60)) << line;
          }
        }
      }
    }
  }
}

TEST(SplitPictureTest, a_head_keeps_its_colour) {
  const std::string text = draw_split(gpt2(), {ColourDepth::direct, true, 80});
  const Colour first = cividis(0.0);
  const std::string ground = "\x1b[48;2;" + std::to_string(first.red) + ";" +
                             std::to_string(first.green) + ";" + std::to_string(first.blue) + "m";
  EXPECT_EQ(count_of(text, ground), 9);  // three tokens in three drawings
}

TEST(SplitPictureTest, the_svg_draws_every_head_and_strikes_the_inner_axis_out) {
  const std::string svg = split_svg(gpt2());
  EXPECT_TRUE(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  EXPECT_EQ(count_of(svg, "text-decoration=\"line-through\">64</t"), 4);  // in words and drawn
  EXPECT_EQ(count_of(svg, "text-decoration=\"line-through\">6</t"), 4);
  EXPECT_EQ(count_of(svg, ">11</text>"), 9);
  EXPECT_EQ(count_of(svg, ">batch</text>"), 2);
  EXPECT_EQ(split_svg(gpt2(), SvgPlace::page).find("http"), std::string::npos);
}

TEST(SplitPictureTest, names_cannot_leave_their_place_in_an_svg) {
  HeadSplit split = gpt2();
  split.tokens = {"<b>&\"", "\x1b[3", "\xff"};
  const std::string svg = split_svg(split);
  EXPECT_NE(svg.find("&lt;b&gt;&amp;&quot;"), std::string::npos);
  EXPECT_EQ(svg.find("<b>"), std::string::npos);
  EXPECT_EQ(svg.find('\x1b'), std::string::npos);
  EXPECT_EQ(svg.find('\xff'), std::string::npos);  // not UTF-8, so not XML
}

TEST(SplitPictureTest, the_sizes_are_those_of_the_trace) {
  MultiHeadAttention layer(
      {.d_in = 12, .d_out = 12, .num_heads = 6, .num_kv_heads = 2, .v_dim = 5, .seed = 1});
  const HeadSplit split = head_split(layer.trace(normal({3, 4, 12}, 1))).value();
  EXPECT_EQ(split.batch, 3);
  EXPECT_EQ(split.q_tokens, 4);
  EXPECT_EQ(split.num_heads, 6);
  EXPECT_EQ(split.num_kv_heads, 2);
  EXPECT_EQ(split.head_dim, 2);
  EXPECT_EQ(split.v_dim, 5);
  const std::string text = draw_split(split, kPlain);
  EXPECT_NE(text.find("(3, 6, 4, 2) @ (3, 2, 2, 4) = (3, 6, 4, 4)"), std::string::npos) << text;
  EXPECT_NE(text.find("3 heads share a key head"), std::string::npos);
  EXPECT_NE(text.find("view(3, 4, 30)"), std::string::npos);
  EXPECT_EQ(head_split(layer.trace(normal({4, 12}, 1)))->batch, 0);
  HeadWrapper wrapper({.d_in = 6, .d_out = 4, .context_length = 5, .num_heads = 3, .seed = 1});
  EXPECT_FALSE(head_split(wrapper.trace(normal({5, 6}, 1))));
}

TEST(SplitPictureTest, a_size_of_0_is_refused) {
  HeadSplit split = gpt2();
  split.head_dim = 0;
  EXPECT_EQ(testing::error_of([&] { draw_split(split, kPlain); }),
            "split: 6 tokens, 6 keys, 12 heads of 0, 12 key heads and values of 64 must be > 0");
}

}  // namespace
}  // namespace cephalo
