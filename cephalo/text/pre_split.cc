#include "cephalo/text/pre_split.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <vector>

#include "cephalo/text/unicode_classes.h"

namespace cephalo {
namespace {

using enum CharacterClass;

constexpr bool is_space(char32_t c) {
  return (c >= 0x9 && c <= 0xD) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

template <std::size_t count>
bool is_in(const CodePoints (&ranges)[count], char32_t c) {
  const auto* after =
      std::upper_bound(std::begin(ranges), std::end(ranges), c,
                       [](char32_t code, const CodePoints& range) { return code < range.first; });
  return after != std::begin(ranges) && c <= std::prev(after)->last;
}

CharacterClass search_class(char32_t c) {
  if (is_space(c)) return space;
  if (is_in(kLetters, c)) return letter;
  return is_in(kNumbers, c) ? number : other;
}

// Searched once for the first 65,536 code points, which is where text lives.
CharacterClass class_of(char32_t c) {
  constexpr char32_t kTabled = 0x10000;
  static const auto table = [] {
    std::vector<CharacterClass> classes(kTabled);
    for (char32_t code = 0; code < kTabled; ++code) classes[code] = search_class(code);
    return classes;
  }();
  return c < kTabled ? table[c] : search_class(c);
}

constexpr std::array<CharacterClass, 128> kAscii = [] {
  std::array<CharacterClass, 128> classes{};
  for (char32_t c = 0; c < 128; ++c) {
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const bool is_digit = c >= '0' && c <= '9';
    classes[c] = is_letter ? letter : is_digit ? number : is_space(c) ? space : other;
  }
  return classes;
}();

unsigned char byte_at(std::string_view text, std::size_t at) {
  return static_cast<unsigned char>(text[at]);
}

// Well-formed sequences are those of the Unicode Standard's table 3-7: no overlong forms, no
// surrogates, nothing over U+10FFFF.
Character first_beyond_ascii(std::string_view text) {
  const unsigned lead = byte_at(text, 0);
  const unsigned bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < bytes) return {other, 1};
  const unsigned second = byte_at(text, 1);
  const unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (second < low || second > high) return {other, 1};
  char32_t code = lead & (0x7FU >> bytes);
  code = code << 6 | (second & 0x3FU);
  for (unsigned k = 2; k < bytes; ++k) {
    const unsigned next = byte_at(text, k);
    if (next < 0x80 || next > 0xBF) return {other, 1};
    code = code << 6 | (next & 0x3FU);
  }
  return {class_of(code), static_cast<unsigned char>(bytes)};
}

// Where the run of characters of one class that begins at `at` ends.
std::size_t run_end(std::string_view text, std::size_t at, CharacterClass kind) {
  while (at < text.size()) {
    const unsigned char first = byte_at(text, at);
    if (first < 128) {
      if (kAscii[first] != kind) break;
      ++at;
    } else {
      const Character next = first_beyond_ascii(text.substr(at));
      if (next.kind != kind) break;
      at += next.bytes;
    }
  }
  return at;
}

// 's 't 're 've 'm 'll 'd at the beginning, or 0.
std::size_t contraction_bytes(std::string_view text) {
  if (text.size() < 2 || text[0] != '\'') return 0;
  const char next = text[1];
  if (next == 's' || next == 't' || next == 'm' || next == 'd') return 2;
  const std::string_view two = text.substr(1, 2);
  return two == "re" || two == "ve" || two == "ll" ? 3 : 0;
}

// A run of white space leaves its last character to what follows, where it is more than one.
std::size_t space_bytes(std::string_view text) {
  std::size_t at = 0;
  std::size_t last = 0;
  while (at < text.size()) {
    const Character next = first_character(text.substr(at));
    if (next.kind != space) return last > 0 ? last : at;
    last = at;
    at += next.bytes;
  }
  return at;
}

}  // namespace

Character first_character(std::string_view text) {
  const unsigned char first = byte_at(text, 0);
  return first < 128 ? Character{kAscii[first], 1} : first_beyond_ascii(text);
}

std::size_t piece_bytes(std::string_view text) {
  if (const std::size_t bytes = contraction_bytes(text); bytes > 0) return bytes;
  const std::size_t begin = text[0] == ' ' && text.size() > 1 ? 1 : 0;
  const Character first = first_character(text.substr(begin));
  if (first.kind == space) return space_bytes(text);
  return run_end(text, begin + first.bytes, first.kind);
}

}  // namespace cephalo
