#pragma once

#include <string>
#include <vector>

#include "bindings/arrays/arrays.h"
#include "cephalo/mask/mask.h"

namespace cephalo::python {

// A mask and the arrays that it looks at.
struct PyMask {
  Mask mask;
  std::vector<ArrayIn> arrays;
};

// mask=: a Mask or None. A bare array is refused: whether it hides or shows is not in its name.
const Mask& mask_of(nb::handle mask, const char* function);

}  // namespace cephalo::python
