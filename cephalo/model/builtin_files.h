#pragma once

#include <cstddef>
#include <span>

namespace cephalo {

// The files of models/, byte for byte; all empty in a library without a built-in model.
struct BuiltinFiles {
  const char* name;
  std::span<const std::byte> config_json;
  std::span<const std::byte> model_safetensors;
  std::span<const std::byte> vocab_json;
  std::span<const std::byte> merges_txt;
};
BuiltinFiles builtin_files();

}  // namespace cephalo
