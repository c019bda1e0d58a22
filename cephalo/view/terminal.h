#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cephalo/core/tensor.h"

#pragma GCC visibility push(default)
namespace cephalo {

// What a terminal can show. Without colours weights are shades of characters.
enum class ColourDepth { none, indexed, direct };  // 256 colours; 24 bits
struct TerminalStyle {
  ColourDepth colours = ColourDepth::none;
  bool utf8 = true;  // otherwise ASCII alone
  dim_t width = 80;  // columns
};

// Text on the colour of a weight from 0 to 1; as it is where there are no colours.
std::string painted(std::string_view text, double weight, const TerminalStyle& style);
// The same for a number from −1 to 1, on the colour of its sign.
std::string painted_signed(std::string_view text, double x, const TerminalStyle& style);
std::string bold(std::string_view text, const TerminalStyle& style);

// ".98", or "1.0": a weight in three columns
std::string short_weight(double weight);

// One character for a weight from 0 to 1, where there are no colours.
std::string shade(double weight, const TerminalStyle& style);
// What the shades or colours mean: one line.
std::string legend(const TerminalStyle& style);

// cells: [rows, columns], weights from 0 to 1 of a causal head -> lines of `columns` columns. What
// lies above the diagonal is hidden and stays empty, as NaN does: it is not a weight of 0. With
// colours and UTF-8 a line holds two rows.
std::vector<std::string> draw_map(const TensorView& cells, const TerminalStyle& style);

// `share` of `width` columns, in eighths where the characters allow it.
std::string draw_bar(double share, dim_t width, const TerminalStyle& style);

}  // namespace cephalo
#pragma GCC visibility pop
