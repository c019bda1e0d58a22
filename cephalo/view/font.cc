#include "cephalo/view/font.h"

#include <cmath>

#include "cephalo/core/fail.h"
#include "cephalo/core/format.h"
#include "cephalo/core/printable.h"
#include "cephalo/text/pre_split.h"
#include "cephalo/view/font_file.h"

#define STBTT_STATIC
#define STB_TRUETYPE_IMPLEMENTATION
#include <stb/stb_truetype.h>

namespace cephalo {
namespace {

constexpr double kWidthOfEm = 0.602;  // of every letter
constexpr double kCapitalOfEm = 0.729;

// stb_truetype trusts what it reads; it reads our own file alone.
const stbtt_fontinfo& font() {
  static const stbtt_fontinfo kFont = [] {
    const auto* bytes = reinterpret_cast<const unsigned char*>(font_file().data());
    stbtt_fontinfo info;
    if (stbtt_InitFont(&info, bytes, stbtt_GetFontOffsetForIndex(bytes, 0)) == 0) {
      fail(Error::Kind::value, "font: the font of pictures cannot be read");
    }
    return info;
  }();
  return kFont;
}

bool has(char32_t letter) {
  return stbtt_FindGlyphIndex(&font(), static_cast<int>(letter)) != 0;
}

struct CodePoint {
  std::string_view bytes;
  char32_t code;  // of a byte that is part of no character: itself
  bool whole;
};

CodePoint next_code_point(std::string_view text) {
  const std::string_view bytes = text.substr(0, first_character(text).bytes);
  const auto byte = [&](std::size_t k) { return static_cast<unsigned char>(bytes[k]); };
  if (bytes.size() == 1) return {bytes, byte(0), byte(0) < 0x80};
  char32_t code = byte(0) & (0x7FU >> bytes.size());
  for (std::size_t k = 1; k < bytes.size(); ++k) code = code << 6 | (byte(k) & 0x3FU);
  return {bytes, code, true};
}

std::string spelled(const CodePoint& c) {
  return c.whole ? format_text("U+{:04X}", static_cast<std::uint32_t>(c.code))
                 : format_text("\\x{:02X}", static_cast<std::uint32_t>(c.code));
}

// visit(character, letters): those that stand for it; spelled ones are kept apart by a space.
template <typename Visit>
void for_characters(std::string_view text, const Visit& visit) {
  bool after_spelled = false;
  while (!text.empty()) {
    const CodePoint c = next_code_point(text);
    text.remove_prefix(c.bytes.size());
    const bool is_letter = c.whole && has(c.code);
    std::u32string letters;
    if (is_letter) {
      letters += c.code;
    } else {
      if (after_spelled) letters += U' ';
      for (const char digit : spelled(c)) letters += static_cast<char32_t>(digit);
    }
    after_spelled = !is_letter;
    if (!visit(c, letters)) return;
  }
}

// What XML may not hold, and what would turn the direction of the text around it.
bool is_harmful(const CodePoint& c) {
  return !c.whole || printable(c.bytes) != c.bytes || (c.code & 0xFFFEU) == 0xFFFEU;
}

}  // namespace

Glyph glyph(char32_t letter, dim_t size) {
  const stbtt_fontinfo& info = font();
  const float scale = stbtt_ScaleForMappingEmToPixels(&info, static_cast<float>(em_size(size)));
  const int index = stbtt_FindGlyphIndex(&info, static_cast<int>(letter));
  int left = 0;
  int top = 0;
  int right = 0;
  int bottom = 0;
  stbtt_GetGlyphBitmapBox(&info, index, scale, scale, &left, &top, &right, &bottom);
  Glyph drawn{left, top, right - left, bottom - top, {}};
  drawn.coverage.resize(static_cast<std::size_t>(drawn.width * drawn.height));
  if (!drawn.coverage.empty()) {
    stbtt_MakeGlyphBitmap(&info, drawn.coverage.data(), right - left, bottom - top, right - left,
                          scale, scale, index);
  }
  return drawn;
}

std::u32string letters_of(std::string_view text) {
  std::u32string all;
  for_characters(text, [&](const CodePoint&, const std::u32string& letters) {
    all += letters;
    return true;
  });
  return all;
}

dim_t count_letters(std::string_view text) {
  return static_cast<dim_t>(letters_of(text).size());
}

std::string fitted(std::string_view text, dim_t letters) {
  if (count_letters(text) <= letters) return std::string(text);
  std::size_t bytes = 0;
  dim_t used = 1;  // the dots
  for_characters(text, [&](const CodePoint& c, const std::u32string& drawn) {
    used += static_cast<dim_t>(drawn.size());
    if (used > letters) return false;
    bytes += c.bytes.size();
    return true;
  });
  return std::string(text.substr(0, bytes)) + "…";
}

std::string as_xml(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const CodePoint c = next_code_point(text);
    text.remove_prefix(c.bytes.size());
    if (is_harmful(c)) {
      out += spelled(c);
    } else if (c.code == '&') {
      out += "&amp;";
    } else if (c.code == '<') {
      out += "&lt;";
    } else if (c.code == '>') {
      out += "&gt;";
    } else if (c.code == '"') {
      out += "&quot;";
    } else {
      out += c.bytes;
    }
  }
  return out;
}

dim_t capital_height(dim_t size) {
  return std::lround(kCapitalOfEm * em_size(size));
}

double em_size(dim_t size) {
  return static_cast<double>(size) / kWidthOfEm;
}

}  // namespace cephalo
