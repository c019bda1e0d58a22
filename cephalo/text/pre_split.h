#pragma once

// Inside the library only.
#include <cstddef>
#include <string_view>

namespace cephalo {

enum class CharacterClass : unsigned char { letter, number, space, other };

struct Character {
  CharacterClass kind;
  unsigned char bytes;  // 1 to 4
};

// The first character of text, which must not be empty. A byte that is part of no well-formed UTF-8
// sequence is a character of its own, of the class of U+FFFD, by which others replace it: other.
Character first_character(std::string_view text);

// The bytes of the first piece of text, which must not be empty, by GPT-2's pattern
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// which matches something everywhere: pieces put together are the text.
std::size_t piece_bytes(std::string_view text);

// Where more text may follow, a piece is known to be whole when so many bytes come after it.
inline constexpr std::size_t kPieceLookAhead = 8;

}  // namespace cephalo
