// The two files of a vocabulary, with a NUL between them; what is loaded must give any bytes back.
#include <cstdlib>
#include <string_view>

#include "cephalo/core/error.h"
#include "cephalo/text/bpe.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t cut = std::min(input.find('\0'), input.size());
  try {
    const auto bpe =
        cephalo::Bpe::parse(input.substr(0, cut), input.substr(std::min(cut + 1, input.size())));
    if (bpe.decode(bpe.encode(input, bpe.special_tokens())) != input) std::abort();
    if (cephalo::Bpe::parse(bpe.vocab_json(), bpe.merges_txt()).fingerprint() !=
        bpe.fingerprint()) {
      std::abort();
    }
  } catch (const cephalo::Error& error) {
    if (*error.what() == '\0') std::abort();
  }
  return 0;
}
