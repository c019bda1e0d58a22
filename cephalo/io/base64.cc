#include "cephalo/io/base64.h"

#include <cstdint>

namespace cephalo {
namespace {

constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

char digit(std::uint32_t three_bytes, int place) {
  return kDigits[(three_bytes >> (18 - 6 * place)) & 63];
}

}  // namespace

void append_base64(std::span<const std::byte> bytes, std::string& to) {
  to.reserve(to.size() + (bytes.size() + 2) / 3 * 4);
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    std::uint32_t three = 0;
    for (std::size_t n = 0; n < 3; ++n) {
      three =
          three << 8 | (at + n < bytes.size() ? std::to_integer<std::uint32_t>(bytes[at + n]) : 0);
    }
    const std::size_t there = bytes.size() - at;
    to += digit(three, 0);
    to += digit(three, 1);
    to += there > 1 ? digit(three, 2) : '=';
    to += there > 2 ? digit(three, 3) : '=';
  }
}

}  // namespace cephalo
