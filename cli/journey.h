#pragma once

#include "cephalo/core/tensor.h"

namespace cephalo::cli {

// The book's sentence, and its six tokens with three numbers each: [6, 3].
inline constexpr const char* kJourney = "Your journey starts with one step";
Tensor journey();

}  // namespace cephalo::cli
