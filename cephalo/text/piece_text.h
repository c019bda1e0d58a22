#pragma once

#include <string>
#include <string_view>

namespace cephalo {

// Pieces of text, which may be any bytes, in letters that can be shown in one line.

// As a program would write it: spaces can be seen, and any byte told.
std::string in_quotes(std::string_view piece);

// The same for a label, without quotes and the space before a word.
std::string as_label(std::string_view piece);

// A text of any characters in one line: a line end is seen as \n.
std::string on_one_line(std::string_view text);

}  // namespace cephalo
