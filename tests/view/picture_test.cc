#include "cephalo/view/picture.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "cephalo/view/font.h"
#include "cephalo/view/font_file.h"
#include "cephalo/view/pixels.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

constexpr Colour kBlack{0, 0, 0};
constexpr Colour kWhite{255, 255, 255};

std::string drawn(std::string_view text) {
  std::string out;
  for (const char32_t letter : letters_of(text)) {
    out += letter < 0x80 ? std::string(1, static_cast<char>(letter)) : "?";
  }
  return out;
}

TEST(FontTest, it_is_small_and_has_latin_greek_and_cyrillic) {
  EXPECT_LE(font_file().size(), 150'000U);
  EXPECT_EQ(letters_of("Aé€ß łőž αΩ яЖ “–…→"), U"Aé€ß łőž αΩ яЖ “–…→");
}

TEST(FontTest, other_characters_are_spelled_out) {
  EXPECT_EQ(drawn("日本"), "U+65E5 U+672C");
  EXPECT_EQ(drawn("a😀b"), "aU+1F600b");
  EXPECT_EQ(drawn("a\nb\x1b"), "aU+000AbU+001B");
  EXPECT_EQ(drawn("\xE6\x97"), "\\xE6 \\x97");
  EXPECT_EQ(count_letters("日本"), 13);
}

TEST(FontTest, letters_have_ink_and_stand_on_their_line) {
  const Glyph bar = glyph(U'l', 10);
  EXPECT_EQ(bar.top + bar.height, 0) << "it ends on the line";
  EXPECT_GE(bar.height, capital_height(10) - 1);
  const Glyph deep = glyph(U'g', 10);
  EXPECT_GT(deep.top + deep.height, 1) << "below it";
  for (const char32_t letter : U"éĞЖΩ→") {
    if (letter == 0) break;
    const Glyph g = glyph(letter, 10);
    EXPECT_GE(*std::max_element(g.coverage.begin(), g.coverage.end()), 200);
    EXPECT_LE(g.left + g.width, 11) << "it stays in its column";
  }
  EXPECT_TRUE(glyph(U' ', 10).coverage.empty());
}

TEST(FontTest, what_does_not_fit_is_cut_with_dots) {
  EXPECT_EQ(fitted("Jemima", 6), "Jemima");
  EXPECT_EQ(fitted("Jemima", 5), "Jemi…");
  EXPECT_EQ(fitted("é日本", 8), "é日…") << "日 takes six letters";
  EXPECT_EQ(fitted("é日本", 7), "é…");
}

TEST(FontTest, markup_cannot_be_broken_or_turned_around) {
  EXPECT_EQ(as_xml("<a b=\"&\">日"), "&lt;a b=&quot;&amp;&quot;&gt;日");
  EXPECT_EQ(as_xml("a\u202Eb\x01\xFF"), "aU+202EbU+0001\\xFF");
}

TEST(PixelsTest, what_is_drawn_outside_is_left_out) {
  Pixels pixels(8, 9, {1, 2, 3});
  pixels.fill(6, 7, 100, 100, {9, 9, 9});
  pixels.set(-1, 4, kWhite);
  EXPECT_EQ(pixels.at(0, 8), (Colour{1, 2, 3}));
  EXPECT_EQ(pixels.at(7, 8), (Colour{9, 9, 9}));
  pixels.set(0, 0, {201, 202, 203}, 128);
  EXPECT_EQ(pixels.at(0, 0), (Colour{101, 102, 103}));
}

TEST(PictureTest, in_svg_maps_are_paths_and_text_is_text) {
  Picture picture(40, 30, kBlack);
  picture.draw_map(2, 2, Tensor::of({{1.0, 0.0}, {0.5, 0.5}}), 8);
  picture.write(20, 20, "<&\"日", {.colour = kWhite, .anchor = Anchor::end});
  const std::string svg = picture.svg();
  EXPECT_NE(svg.find("<path fill=\"#ffea46\" d=\"M2 2h8v8h-8z\"/>"), std::string::npos) << svg;
  EXPECT_NE(svg.find("M2 10h16v8h-16z"), std::string::npos) << "equal neighbours are one";
  EXPECT_NE(svg.find("d=\"M10 2v8h8V2z\""), std::string::npos) << "the hidden cell";
  EXPECT_NE(svg.find("text-anchor=\"end\">&lt;&amp;&quot;日</text>"), std::string::npos) << svg;
}

TEST(PictureTest, maps_are_square) {
  Picture picture(40, 30, kBlack);
  EXPECT_EQ(testing::error_of([&] {
              picture.draw_map(0, 0, Tensor::zeros({2, 3}), 1);
            }),
            "Picture: the weights of a map must be [n, n], not [2, 3]");
}

}  // namespace
}  // namespace cephalo
