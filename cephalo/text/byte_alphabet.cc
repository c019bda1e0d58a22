#include "cephalo/text/byte_alphabet.h"

namespace cephalo {
namespace {

constexpr bool is_visible(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr unsigned kNone = 256;

struct Alphabet {
  std::array<unsigned char, 256> by_character{};
  std::array<unsigned, 256> code_of{};
  std::array<unsigned, 0x144> byte_of{};  // kNone where a character stands for no byte
};

constexpr Alphabet kAlphabet = [] {
  Alphabet alphabet;
  for (unsigned& byte : alphabet.byte_of) byte = kNone;
  unsigned next = 0;
  unsigned next_code = 0x100;
  for (const bool visible : {true, false}) {
    for (unsigned byte = 0; byte < 256; ++byte) {
      if (is_visible(byte) != visible) continue;
      const unsigned code = visible ? byte : next_code++;
      alphabet.by_character[next++] = static_cast<unsigned char>(byte);
      alphabet.code_of[byte] = code;
      alphabet.byte_of[code] = byte;
    }
  }
  return alphabet;
}();

}  // namespace

const std::array<unsigned char, 256>& bytes_by_character() {
  return kAlphabet.by_character;
}

std::string to_byte_characters(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    const unsigned code = kAlphabet.code_of[static_cast<unsigned char>(c)];
    if (code < 0x80) {
      text += static_cast<char>(code);
    } else {
      text += static_cast<char>(0xC0U | code >> 6);
      text += static_cast<char>(0x80U | (code & 0x3FU));
    }
  }
  return text;
}

std::optional<std::string> from_byte_characters(std::string_view text) {
  std::string bytes;
  for (std::size_t at = 0; at < text.size(); ++at) {
    unsigned code = static_cast<unsigned char>(text[at]);
    if (code >= 0x80) {  // U+0080 to U+07FF take two bytes; characters over them are none of ours
      if (code < 0xC2 || code > 0xDF || at + 1 == text.size()) return std::nullopt;
      const unsigned second = static_cast<unsigned char>(text[++at]);
      if ((second & 0xC0U) != 0x80U) return std::nullopt;
      code = (code & 0x1FU) << 6 | (second & 0x3FU);
    }
    if (code >= kAlphabet.byte_of.size() || kAlphabet.byte_of[code] == kNone) return std::nullopt;
    bytes += static_cast<char>(kAlphabet.byte_of[code]);
  }
  return bytes;
}

}  // namespace cephalo
