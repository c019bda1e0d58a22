#pragma once

#include <iosfwd>
#include <string>

#include "cephalo/core/tensor.h"

#pragma GCC visibility push(default)
namespace cephalo {

// The numbers of a tensor in nested brackets, `decimals` after the point, long axes shortened to
// their first and last three entries.
std::string to_string(const TensorView& t, int decimals = 4);

// As to_string writes them.
std::ostream& operator<<(std::ostream& out, const TensorView& t);
std::ostream& operator<<(std::ostream& out, const Dims& dims);

}  // namespace cephalo
#pragma GCC visibility pop
