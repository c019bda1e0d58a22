#pragma once

#include <string>

#include "cephalo/mask/mask.h"

namespace cephalo::cli {

// A mask from the words that C++ and Python use: 'causal() & window(127, 0)'. Tensors are named as
// files: keep("keep.npy"), drop(…), bias(…), documents(…). A UsageError says where it went wrong.
Mask parse_mask(const std::string& text);

}  // namespace cephalo::cli
