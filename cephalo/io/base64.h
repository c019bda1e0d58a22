#pragma once

// Inside the library only.
#include <cstddef>
#include <span>
#include <string>

namespace cephalo {

// Appends bytes as base64 with padding, without line ends.
void append_base64(std::span<const std::byte> bytes, std::string& to);

}  // namespace cephalo
