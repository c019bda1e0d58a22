#pragma once

#include <string>

#include "cephalo/model/text_model.h"
#include "cli/command.h"

namespace cephalo::cli {

// The flags that say which model a verb uses, and how its files are judged.
struct ModelFlags {
  std::string folder;
  bool allow_extra = false, strict = false;

  Flag add_to(Command verb);  // --model
  // The built-in one without --model. Warnings go to stderr.
  TextModel load() const;
};

}  // namespace cephalo::cli
