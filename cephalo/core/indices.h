#pragma once

// Inside the library only.
#include "cephalo/core/shape.h"

namespace cephalo {

// Indices of a tensor in row-major order: the first, and the one after; false after the last.
inline Dims origin(const Shape& shape) {
  Dims index = shape;
  for (dim_t& n : index) n = 0;
  return index;
}
inline bool advance(Dims& index, const Shape& shape) {
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    if (++index[axis] < shape[axis]) return true;
    index[axis] = 0;
  }
  return false;
}

}  // namespace cephalo
