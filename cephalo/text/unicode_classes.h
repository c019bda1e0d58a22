#pragma once

// Inside the library only.

namespace cephalo {

struct CodePoints {
  char32_t first, last;
};

// \p{L} and \p{N}, ascending.
extern const CodePoints kLetters[677];
extern const CodePoints kNumbers[144];

}  // namespace cephalo
