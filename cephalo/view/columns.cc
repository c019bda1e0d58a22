#include "cephalo/view/columns.h"

#include <algorithm>

namespace cephalo {
namespace {

bool continues_character(char c) {
  return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U;
}

}  // namespace

std::size_t end_of_word(std::string_view text) {
  const std::size_t end = std::min(text.find(' '), text.size());
  return text.starts_with("\" ") ? std::min(text.find(' ', end + 1), text.size()) : end;
}

std::size_t display_width(std::string_view text) {
  std::size_t width = 0;
  for (const char c : text) width += continues_character(c) ? 0 : 1;
  return width;
}

std::string fit(std::string_view text, std::size_t width) {
  std::string fitted;
  std::size_t used = 0;
  for (const char c : text) {
    if (!continues_character(c) && ++used > width) break;
    fitted += c;
  }
  fitted.append(width - std::min(width, display_width(fitted)), ' ');
  return fitted;
}

std::string cut(const std::string& label, std::size_t width, bool utf8) {
  const std::size_t whole = display_width(label);
  if (whole <= width || width == 0) return fit(label, std::min(width, whole));
  return fit(label, width - 1) + (utf8 ? "…" : "~");
}

std::string wrapped(std::string_view text, std::size_t width) {
  std::string out;
  std::size_t used = 0;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, end_of_word(text));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    const bool fits = used + 1 + display_width(word) <= width;
    if (used > 0) out += fits ? ' ' : '\n';
    used = (used > 0 && fits ? used + 1 : 0) + display_width(word);
    out += word;
  }
  return out + "\n";
}

}  // namespace cephalo
