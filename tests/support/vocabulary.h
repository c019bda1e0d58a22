#pragma once

#include <string>
#include <vector>

#include "cephalo/text/bpe.h"

namespace cephalo::testing {

// The small vocabulary of tests/golden/files/tokenizer: 420 tokens, the last is <|endoftext|>.
std::string golden_vocabulary_folder();
Bpe golden_vocabulary();

std::vector<std::string> byte_vocabulary();  // 256 tokens, one for each byte

std::string from_hex(const std::string& digits);

}  // namespace cephalo::testing
