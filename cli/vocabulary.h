#pragma once

#include <string>

#include "cephalo/text/bpe.h"
#include "cli/command.h"

namespace cephalo::cli {

// The flag that names a vocabulary.
struct VocabularyFlags {
  std::string folder;

  void add_to(Command verb);
  Bpe load() const;
};

}  // namespace cephalo::cli
