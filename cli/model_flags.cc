#include "cli/model_flags.h"

#include <vector>

#include "cephalo/core/format.h"
#include "cephalo/model/builtin.h"
#include "cli/terminal.h"
#include "cli/verbs.h"

namespace cephalo::cli {

Flag ModelFlags::add_to(Command verb) {
  Flag model =
      verb.add_option(
              "--model", folder,
              "Folder with config.json, model.safetensors, vocab.json and merges.txt; default: "
              "the built-in model")
          .type_name("FOLDER");
  verb.add_flag("--allow-extra", allow_extra,
                "Ignore tensors and keys that the model does not have");
  verb.add_flag("--strict", strict, "NaN or infinity in a parameter is an error");
  return model;
}

TextModel ModelFlags::load() const {
  if (folder.empty()) {
    if (!has_builtin_model()) {
      throw UsageError("--model: no model given, and this program was built without one");
    }
    return builtin_model();
  }
  LoadGptOptions options{.allow_extra = allow_extra, .strict = strict};
  options.progress = [](std::int64_t done, std::int64_t all) {
    show_progress("reading", done, all);
  };
  std::vector<std::string> warnings;
  TextModel model = load_text_model(folder, options, &warnings);
  for (const std::string& warning : warnings) warn(warning);
  return model;
}

}  // namespace cephalo::cli
