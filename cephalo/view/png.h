#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#pragma GCC visibility push(default)
namespace cephalo {

// rgb: width · height pixels of 3 bytes, row by row from the top -> the bytes of a PNG file.
// Compressed simply: what occurred shortly before is not written twice.
std::string encode_png(std::int64_t width, std::int64_t height, std::span<const std::uint8_t> rgb);

}  // namespace cephalo
#pragma GCC visibility pop
