#pragma once

// Inside the library only.
#include <cstddef>
#include <cstdint>
#include <span>

namespace cephalo {

// XXH32 of these bytes, as `xxhsum -H0` prints it: for readers that have no 64-bit arithmetic.
std::uint32_t short_checksum(std::span<const std::byte> bytes);

}  // namespace cephalo
