#pragma once

// Inside the library only.
#include <string_view>

#include "cephalo/view/font.h"
#include "cephalo/view/picture.h"

namespace cephalo {

// What pictures of reports have in common: a dark page, one font, its lines.
inline constexpr Colour kPage{12, 17, 29};
inline constexpr Colour kInk{226, 229, 234};
inline constexpr Colour kFaint{150, 158, 172};

inline constexpr dim_t kLetter = 10;  // width of a letter
inline constexpr dim_t kLine = 24;    // from line to line
inline constexpr dim_t kMargin = 24;
inline constexpr dim_t kStrip = 160;  // of a legend

inline constexpr TextStyle kPlainInk{.colour = kInk, .size = kLetter};
inline constexpr TextStyle kPlainFaint{.colour = kFaint, .size = kLetter};

inline dim_t text_width(std::string_view text, dim_t letter = kLetter) {
  return count_letters(text) * letter;
}

}  // namespace cephalo
