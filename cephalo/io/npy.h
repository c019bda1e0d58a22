#pragma once

#include <string>

#include "cephalo/core/tensor.h"

#pragma GCC visibility push(default)
namespace cephalo {

// A NumPy .npy file of version 1.0, 2.0 or 3.0: numbers and bools, little-endian, row- or
// column-major. Its header is read as data, never evaluated, and checked against the file's size
// before anything is allocated. Object arrays, strings, structures, big-endian numbers and scalars
// are refused by name.
Tensor read_npy(const std::string& path);

// Version 1.0, whole or not at all. bfloat16, which NumPy does not have, is refused.
void write_npy(const std::string& path, const TensorView& t, bool replace = false);

}  // namespace cephalo
#pragma GCC visibility pop
