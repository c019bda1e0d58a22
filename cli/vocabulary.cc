#include "cli/vocabulary.h"

#include "cli/verbs.h"

namespace cephalo::cli {

void VocabularyFlags::add_to(CLI::App& verb) {
  verb.add_option("--vocab", folder,
                  "Folder with vocab.json and merges.txt, or encoder.json and vocab.bpe")
      ->type_name("FOLDER");
}

// The one place where the program decides which vocabulary it uses.
Bpe VocabularyFlags::load() const {
  if (folder.empty()) {
    throw UsageError(
        "--vocab: say which vocabulary, for example one made by: cephalo tokenize train FILE "
        "-o FOLDER");
  }
  return Bpe::load(folder);
}

}  // namespace cephalo::cli
