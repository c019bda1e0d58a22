#pragma once

#include <string>

#include "cephalo/mask/mask.h"

namespace cephalo::cli {

// A mask from the text of --mask; its tensors are files: keep("keep.npy"), drop(…), bias(…),
// documents(…). A UsageError says where it went wrong.
Mask mask_of_flag(const std::string& text);

}  // namespace cephalo::cli
