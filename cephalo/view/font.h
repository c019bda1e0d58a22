#pragma once

// Inside the library only.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cephalo/core/shape.h"

namespace cephalo {

// The font of pictures: DejaVu Sans Mono, its Latin, Greek and Cyrillic. All letters are equally
// wide; a size is that width in pixels.

// One letter, smoothed: coverage from 0 to 255, [height, width]. Its left top corner is at
// (left, top) from where it stands on its line.
struct Glyph {
  dim_t left, top, width, height;
  std::vector<std::uint8_t> coverage;
};
Glyph glyph(char32_t letter, dim_t size);

// The letters that stand for a text. A character that the font lacks is spelled out, 日 as U+65E5,
// and a byte that is part of none as \xE6.
std::u32string letters_of(std::string_view text);
// How many they are: text of this size is so many times as wide.
dim_t count_letters(std::string_view text);
// The first characters of a text, with "…" behind them where something was cut off: at most
// `letters` letters.
std::string fitted(std::string_view text, dim_t letters);

// For markup: what XML forbids or what would turn the direction of a text is spelled out as above.
std::string as_xml(std::string_view text);

// Pixels from the line up to the top of a capital, and of the font's square (CSS font-size).
dim_t capital_height(dim_t size);
double em_size(dim_t size);

}  // namespace cephalo
