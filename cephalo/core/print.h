#pragma once

#include <iosfwd>
#include <string>

#include "cephalo/core/export.h"
#include "cephalo/core/tensor.h"

namespace CEPHALO_API cephalo {

// The numbers of a tensor in nested brackets, `decimals` after the point, long axes shortened to
// their first and last three entries.
std::string to_string(const TensorView& t, int decimals = 4);

// As to_string writes them.
std::ostream& operator<<(std::ostream& out, const TensorView& t);
std::ostream& operator<<(std::ostream& out, const Dims& dims);

}  // namespace cephalo
