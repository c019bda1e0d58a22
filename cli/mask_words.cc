#include "cli/mask_words.h"

#include "cephalo/core/format.h"
#include "cephalo/io/npy.h"
#include "cephalo/mask/mask_text.h"
#include "cli/verbs.h"

namespace cephalo::cli {

Mask mask_of_flag(const std::string& text) {
  try {
    return parse_mask(text, [](const std::string& path) { return read_npy(path); });
  } catch (const MaskTextError& error) {
    throw UsageError(format_text("--{}", error.what()));  // "--mask: expected ..."
  }
}

}  // namespace cephalo::cli
