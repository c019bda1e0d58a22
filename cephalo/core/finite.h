#pragma once

// Inside the library and its program only.
#include "cephalo/core/tensor.h"

namespace cephalo {

// How many elements are NaN or infinite; none of integers. Any strides: read where they lie, since
// a copy would double the memory of a large file.
dim_t count_not_finite(const TensorView& t);

}  // namespace cephalo
