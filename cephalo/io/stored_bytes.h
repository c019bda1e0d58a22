#pragma once

#include <optional>

#include "cephalo/core/dtype.h"
#include "cephalo/core/shape.h"

namespace cephalo {

// Bytes of a tensor of which a file says shape and type; nothing where they overflow. A 0 in the
// shape stores nothing, but the rest of it must be a size all the same: code that multiplies
// dimensions in another order would meet it.
std::optional<dim_t> stored_bytes(const Shape& shape, DType dtype);

}  // namespace cephalo
