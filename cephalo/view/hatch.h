#pragma once

// Inside the library only.
#include "cephalo/core/shape.h"
#include "cephalo/view/colour.h"

namespace cephalo {

// What a query may not look at is hatched, in pixels as in SVG.
inline constexpr Colour kHatchColour{44, 53, 71};
inline constexpr dim_t kHatchStep = 6;  // pixels from line to line

}  // namespace cephalo
