#pragma once

// Inside the library only.
#include <string>

#include "cephalo/core/cpu.h"
#include "cephalo/core/format.h"
#include "cephalo/core/shape.h"

namespace cephalo {

// For the message that refuses so many bytes: "12.0 GiB, this machine has 8.0 GiB".
inline std::string against_memory(dim_t bytes) {
  constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
  return format_text("{:.1f} GiB, this machine has {:.1f} GiB", static_cast<double>(bytes) / kGiB,
                     static_cast<double>(physical_memory()) / kGiB);
}

}  // namespace cephalo
