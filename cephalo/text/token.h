#pragma once

#include <cstdint>

#include "cephalo/core/export.h"

namespace CEPHALO_API cephalo {

// The number of a token in its vocabulary.
using TokenId = std::int32_t;

}  // namespace cephalo
