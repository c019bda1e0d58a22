#pragma once

// Inside the library only.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace cephalo {

// SHA-256 (FIPS 180-4) over bytes that come in pieces, as `sha256sum` prints it. A name for what
// was computed with, not a defence: files are guarded by Checksum, which is ten times as fast.
class Sha256 {
 public:
  void add(std::span<const std::byte> bytes);
  // Of all that was added so far, in 64 hexadecimal digits.
  std::string hex() const;

 private:
  static constexpr std::size_t kBlock = 64;  // bytes that are mixed at once

  void mix(const std::byte* block);

  std::array<std::uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, kBlock> waiting_{};  // the beginning of a block that is not full yet
  std::uint64_t bytes_ = 0;
};

}  // namespace cephalo
