#pragma once

// Inside the library only.
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace cephalo {

// GPT-2's files write each byte as a visible character: "Ġ" stands for a space. Bytes that are
// visible in Latin-1 stand for themselves, the others for U+0100 onwards.

// The 256 bytes in the order of their characters: the first 256 tokens of a vocabulary.
const std::array<unsigned char, 256>& bytes_by_character();

std::string to_byte_characters(std::string_view bytes);
// Nothing when a character stands for no byte.
std::optional<std::string> from_byte_characters(std::string_view text);

}  // namespace cephalo
