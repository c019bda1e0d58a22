#include "cephalo/core/printable.h"

#include <cstddef>

namespace cephalo {
namespace {

bool continues_character(char c) {
  return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U;
}

// How many bytes at the beginning of text are a character that must not reach a terminal; 0: none.
std::size_t harmful_bytes(std::string_view text) {
  const auto byte = [&](std::size_t at) {
    return at < text.size() ? static_cast<unsigned char>(text[at]) : 0U;
  };
  const auto between = [](unsigned value, unsigned least, unsigned most) {
    return value >= least && value <= most;
  };
  if (byte(0) < 0x20 || byte(0) == 0x7F) return 1;
  if (byte(0) == 0xC2 && between(byte(1), 0x80, 0x9F)) return 2;  // U+0080 to U+009F: controls too
  if (byte(0) == 0xD8 && byte(1) == 0x9C) return 2;               // U+061C: a mark of direction
  if (byte(0) != 0xE2) return 0;
  const bool in_80 = byte(1) == 0x80 && (between(byte(2), 0x8E, 0x8F) ||  // U+200E, U+200F
                                         between(byte(2), 0xA8, 0xAE));   // U+2028 to U+202E
  const bool in_81 = byte(1) == 0x81 && between(byte(2), 0xA6, 0xA9);     // U+2066 to U+2069
  return in_80 || in_81 ? 3 : 0;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string safe;
  safe.reserve(text.size());
  while (!text.empty()) {
    const std::size_t harmful = harmful_bytes(text);
    safe += harmful > 0 ? '?' : text.front();
    text.remove_prefix(harmful > 0 ? harmful : 1);
  }
  return safe;
}

std::string to_string(const Shown& shown) {
  constexpr std::size_t kShown = 100;
  const std::string_view text = shown.text;
  if (text.size() <= kShown) return printable(text);
  std::size_t end = kShown;
  while (end > kShown - 3 && continues_character(text[end])) --end;
  return format_text("{}... ({} bytes)", printable(text.substr(0, end)), text.size());
}

std::string with_commas(std::int64_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t place = digits.size(); place > 3; place -= 3) digits.insert(place - 3, ",");
  return digits;
}

}  // namespace cephalo
