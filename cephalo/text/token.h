#pragma once

#include <cstdint>

namespace cephalo {

using TokenId = std::int32_t;

}  // namespace cephalo
