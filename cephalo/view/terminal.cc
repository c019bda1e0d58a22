#include "cephalo/view/terminal.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "cephalo/core/format.h"
#include "cephalo/view/colour.h"

namespace cephalo {
namespace {

constexpr const char* kReset = "\x1b[0m";
constexpr const char* kShades[] = {"·", "░", "▒", "▓", "█"};
constexpr const char* kAsciiShades[] = {".", ":", "+", "#", "@"};
constexpr double kLevels[] = {0.05, 0.25, 0.5, 0.75};  // where a darker one begins

// The escape codes for a colour, or for what stands for it among 256; `part` is 38 for letters and
// 48 for their ground.
std::string code(int part, Colour c, int indexed, const TerminalStyle& style) {
  if (style.colours == ColourDepth::indexed) return format_text("\x1b[{};5;{}m", part, indexed);
  return format_text("\x1b[{};2;{};{};{}m", part, c.red, c.green, c.blue);
}

std::string weight_code(int part, double weight, const TerminalStyle& style) {
  return code(part, cividis(weight), indexed_cividis(weight), style);
}

// Letters that can be read on that colour.
std::string ink_code(Colour ground, const TerminalStyle& style) {
  const bool dark = ink_on(ground) == Colour{0, 0, 0};
  if (style.colours == ColourDepth::indexed) return dark ? "\x1b[38;5;16m" : "\x1b[38;5;231m";
  return dark ? "\x1b[38;2;0;0;0m" : "\x1b[38;2;255;255;255m";
}

// What lies above the diagonal is hidden, and so is what a map leaves out.
bool is_seen(const TensorView& cells, dim_t y, dim_t x) {
  return y < cells.dim(0) && x <= y && !std::isnan(cells.at({y, x}));
}

// Two rows in one line of characters: the upper half of each is the first row's.
std::string half_blocks(const TensorView& cells, dim_t row, const TerminalStyle& style) {
  std::string line;
  for (dim_t x = 0; x < cells.dim(1); ++x) {
    const bool upper = is_seen(cells, row, x);
    const bool lower = is_seen(cells, row + 1, x);
    if (!upper && !lower) {
      line += ' ';
      continue;
    }
    const dim_t front = upper ? row : row + 1;
    line += weight_code(38, cells.at({front, x}), style);
    if (upper && lower) line += weight_code(48, cells.at({row + 1, x}), style);
    line += format_text("{}{}", upper ? "▀" : "▄", kReset);
  }
  return line;
}

std::string shades(const TensorView& cells, dim_t row, const TerminalStyle& style) {
  std::string line;
  for (dim_t x = 0; x < cells.dim(1); ++x) {
    const double weight = cells.at({row, x});
    line += !is_seen(cells, row, x)              ? " "
            : style.colours == ColourDepth::none ? shade(weight, style)
                                                 : painted(" ", weight, style);
  }
  return line;
}

}  // namespace

std::string painted(std::string_view text, double weight, const TerminalStyle& style) {
  if (style.colours == ColourDepth::none) return std::string(text);
  return weight_code(48, weight, style) + ink_code(cividis(weight), style) + std::string(text) +
         kReset;
}

std::string painted_signed(std::string_view text, double x, const TerminalStyle& style) {
  if (style.colours == ColourDepth::none) return std::string(text);
  const Colour ground = signed_colour(x);
  return code(48, ground, indexed_signed(x), style) + ink_code(ground, style) + std::string(text) +
         kReset;
}

std::string bold(std::string_view text, const TerminalStyle& style) {
  if (style.colours == ColourDepth::none) return std::string(text);
  return format_text("\x1b[1m{}{}", text, kReset);
}

std::string short_weight(double weight) {
  const std::string digits = format_text("{:.2f}", weight);
  return digits.starts_with("0") ? digits.substr(1) : "1.0";
}

std::string shade(double weight, const TerminalStyle& style) {
  const auto level = std::upper_bound(std::begin(kLevels), std::end(kLevels), weight);
  const auto index = std::distance(std::begin(kLevels), level);
  return style.utf8 ? kShades[index] : kAsciiShades[index];
}

std::string legend(const TerminalStyle& style) {
  if (style.colours != ColourDepth::none) {
    std::string strip;
    for (int step = 0; step <= 10; ++step) strip += painted(" ", step / 10.0, style);
    return format_text("0 {} 1", strip);
  }
  std::string line = shade(0.0, style) + " 0";
  for (const double level : kLevels) line += format_text("  {} {}", shade(level, style), level);
  return line;
}

std::vector<std::string> draw_map(const TensorView& cells, const TerminalStyle& style) {
  const bool halves = style.utf8 && style.colours != ColourDepth::none;
  std::vector<std::string> lines;
  for (dim_t row = 0; row < cells.dim(0); row += halves ? 2 : 1) {
    lines.push_back(halves ? half_blocks(cells, row, style) : shades(cells, row, style));
  }
  return lines;
}

std::string draw_bar(double share, dim_t width, const TerminalStyle& style) {
  constexpr const char* kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const double exact = std::clamp(share, 0.0, 1.0) * static_cast<double>(width);
  if (!style.utf8) return std::string(static_cast<std::size_t>(std::lround(exact)), '#');
  const auto eighths = static_cast<dim_t>(std::lround(exact * 8.0));
  std::string bar;
  for (dim_t k = 0; k < eighths / 8; ++k) bar += "█";
  return bar + kEighths[eighths % 8];
}

}  // namespace cephalo
