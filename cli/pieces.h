#pragma once

#include <string>
#include <string_view>

namespace cephalo::cli {

// A piece as a program would write it: spaces can be seen, and any byte told.
std::string in_quotes(std::string_view piece);

// The same for a label, without quotes and the space before a word.
std::string as_label(std::string_view piece);

// The first `width` columns of a label, with a mark where something was cut off.
std::string cut(const std::string& label, std::size_t width, bool utf8);

}  // namespace cephalo::cli
