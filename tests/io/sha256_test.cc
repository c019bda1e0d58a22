#include "cephalo/io/sha256.h"

#include <gtest/gtest.h>

#include <string>

namespace cephalo {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string sha256(const std::string& text) {
  Sha256 hash;
  hash.add(bytes_of(text));
  return hash.hex();
}

TEST(Sha256Test, examples_of_the_standard) {
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// Lengths around the end of a block, where the padding takes another one, in two pieces.
TEST(Sha256Test, pieces_make_the_same_whole) {
  for (std::size_t length = 50; length < 135; ++length) {
    const std::string text(length, 'x');
    const std::string whole = sha256(text);
    for (const std::size_t first : {std::size_t{0}, std::size_t{1}, length / 2, length}) {
      Sha256 hash;
      hash.add(bytes_of(text.substr(0, first)));
      EXPECT_NE(hash.hex(), "");  // asking does not change it
      hash.add(bytes_of(text.substr(first)));
      EXPECT_EQ(hash.hex(), whole) << length << " = " << first << " + " << length - first;
    }
  }
}

}  // namespace
}  // namespace cephalo
