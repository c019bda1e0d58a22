#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "cephalo/text/bpe.h"

namespace cephalo::cli {

// The flag that names a vocabulary.
struct VocabularyFlags {
  std::string folder;

  void add_to(CLI::App& verb);
  Bpe load() const;
};

}  // namespace cephalo::cli
