#pragma once

// Inside the library and its program only.
#include <cstddef>
#include <string>
#include <string_view>

namespace cephalo {

// Text in columns of a terminal; one for each character of UTF-8.
std::size_t display_width(std::string_view text);
// The first `width` characters, padded with spaces to that width.
std::string fit(std::string_view text, std::size_t width);
// The first `width` columns of a label, with a mark where something was cut off.
std::string cut(const std::string& label, std::size_t width, bool utf8);
// Where a line may be broken first: at a space, but not at the one inside quotes that a piece such
// as " cat" begins with.
std::size_t end_of_word(std::string_view text);
// Lines of at most that width, broken at spaces; each ends in a line end.
std::string wrapped(std::string_view text, std::size_t width);

}  // namespace cephalo
