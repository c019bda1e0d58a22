#pragma once

#include <cstdint>

#pragma GCC visibility push(default)
namespace cephalo {

// The number of a token in its vocabulary.
using TokenId = std::int32_t;

}  // namespace cephalo
#pragma GCC visibility pop
