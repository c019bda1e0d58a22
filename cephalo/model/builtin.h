#pragma once

#include "cephalo/model/text_model.h"

#pragma GCC visibility push(default)
namespace cephalo {

// The small model that this project trained itself and that is part of the library: models/ has its
// files and its card. A library built with -DCEPHALO_BUILTIN_MODEL=OFF has none.
bool has_builtin_model();
const char* builtin_model_name();

// A new one for every call; an error if there is none.
TextModel builtin_model();
Bpe builtin_tokenizer();

}  // namespace cephalo
#pragma GCC visibility pop
