#include "tests/support/vocabulary.h"

namespace cephalo::testing {

std::string golden_vocabulary_folder() {
  return std::string(CEPHALO_SOURCE_DIR) + "/tests/golden/files/tokenizer";
}

Bpe golden_vocabulary() {
  return Bpe::load(golden_vocabulary_folder());
}

std::vector<std::string> byte_vocabulary() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  return tokens;
}

std::string from_hex(const std::string& digits) {
  std::string bytes;
  for (std::size_t at = 0; at + 1 < digits.size(); at += 2) {
    bytes += static_cast<char>(std::stoi(digits.substr(at, 2), nullptr, 16));
  }
  return bytes;
}

}  // namespace cephalo::testing
