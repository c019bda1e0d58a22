#pragma once

#include <span>

#include "cephalo/io/config_keys.h"
#include "cephalo/model/file_names.h"
#include "cephalo/model/gpt_options.h"

// Whose models are read and written; not for users of the library.
namespace cephalo {

// One family of models: what other programs call it and how they write it down. A model belongs to
// the first family that can say everything about it.
struct Family {
  const char* model_type;  // in config.json
  const char* architecture;
  bool (*can_say)(const GptOptions& checked);
  std::span<const ConfigKey> (*keys)();  // of config.json
  bool writes_ours;                      // those of the keys that are ours alone, too
  const FileNames* names;                // of the parameters it writes
};

std::span<const Family> families();
const Family& family_of(const GptOptions& checked);

}  // namespace cephalo
