#pragma once

#include "cli/verbs.h"

namespace cephalo::cli {

// The verb within tokenize that learns a vocabulary.
Verb add_tokenize_train(Command tokenize);

}  // namespace cephalo::cli
