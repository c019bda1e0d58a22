#pragma once

// Inside the library only.
#include <cstdint>
#include <random>

namespace cephalo {

// A seed for whoever was given none, from the operating system.
inline std::uint64_t random_seed() {
  std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 32) | device();
}

}  // namespace cephalo
