#pragma once

#include <string>

#include "cephalo/model/gpt_options.h"

namespace cephalo::cli {

// "4 layers x 8 heads", or "4 layers x 8 heads (2 of keys and values)".
std::string layers_and_heads(const GptOptions& model);

}  // namespace cephalo::cli
