#pragma once

#include <cstdint>

#include "cephalo/core/export.h"

namespace CEPHALO_API cephalo {

using TokenId = std::int32_t;

}  // namespace cephalo
