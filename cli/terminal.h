#pragma once

#include <string>
#include <string_view>

namespace cephalo::cli {

// Bold where a person looks at a terminal that wants it; plain into a pipe or with NO_COLOR set.
std::string bold(std::string_view text);

// The first `width` characters of UTF-8 text, padded with spaces to that width.
std::string fit(std::string_view text, std::size_t width);
std::size_t display_width(std::string_view text);

// A token as it may be printed: control characters cannot reach the terminal.
std::string printable(std::string_view text);

// Writes to stdout; an error when nobody takes it (a closed pipe, a full disk).
void print(std::string_view text);

}  // namespace cephalo::cli
