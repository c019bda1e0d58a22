#include "cephalo/text/piece_text.h"

#include "cephalo/core/format.h"
#include "cephalo/core/printable.h"
#include "cephalo/text/pre_split.h"

namespace cephalo {
namespace {

// One character in letters that can be printed.
std::string escaped(std::string_view character) {
  const auto byte = static_cast<unsigned char>(character[0]);
  const bool control = character.size() == 1 && (byte < 0x20 || byte >= 0x7F);
  if (character == "\n") return "\\n";
  if (character == "\t") return "\\t";
  if (!control && printable(character) == character) return std::string(character);
  std::string out;
  for (const char c : character) out += format_text("\\x{:02X}", static_cast<unsigned char>(c));
  return out;
}

}  // namespace

std::string in_quotes(std::string_view piece) {
  std::string out = "\"";
  while (!piece.empty()) {
    const std::string_view next = piece.substr(0, first_character(piece).bytes);
    piece.remove_prefix(next.size());
    if (next == "\"" || next == "\\") out += '\\';
    out += escaped(next);
  }
  return out + "\"";
}

std::string as_label(std::string_view piece) {
  if (piece.size() > 1 && piece[0] == ' ') piece.remove_prefix(1);
  std::string out;
  while (!piece.empty()) {
    const std::string_view next = piece.substr(0, first_character(piece).bytes);
    piece.remove_prefix(next.size());
    out += next == " " ? "_" : escaped(next);  // a space alone would not be seen
  }
  return out;
}

std::string on_one_line(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::string_view next = text.substr(0, first_character(text).bytes);
    text.remove_prefix(next.size());
    out += escaped(next);
  }
  return out;
}

}  // namespace cephalo
