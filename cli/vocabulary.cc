#include "cli/vocabulary.h"

#include "cephalo/model/builtin.h"
#include "cli/verbs.h"

namespace cephalo::cli {

void VocabularyFlags::add_to(Command verb) {
  verb.add_option("--vocab", folder,
                  "Folder with vocab.json and merges.txt, or encoder.json and vocab.bpe; default: "
                  "that of the built-in model")
      .type_name("FOLDER");
}

// The one place where the program decides which vocabulary it uses.
Bpe VocabularyFlags::load() const {
  if (!folder.empty()) return Bpe::load(folder);
  if (!has_builtin_model()) {
    throw UsageError(
        "--vocab: no vocabulary given; cephalo tokenize train FILE -o FOLDER makes one");
  }
  return builtin_tokenizer();
}

}  // namespace cephalo::cli
