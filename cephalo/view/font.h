#pragma once

namespace cephalo {

// A small font for pictures: printable ASCII, and a box for everything else.
inline constexpr int kGlyphWidth = 5;
inline constexpr int kGlyphHeight = 9;
inline constexpr int kGlyphAscent = 7;  // rows above the line that letters stand on

// 0 ≤ x < kGlyphWidth from the left, 0 ≤ y < kGlyphHeight from the top
bool glyph_pixel(char character, int x, int y);

}  // namespace cephalo
