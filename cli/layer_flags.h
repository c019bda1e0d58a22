#pragma once

#include <string>

#include "cephalo/attention/layer/layer_file.h"
#include "cli/command.h"

namespace cephalo::cli {

// The flags with which run and convert say what a layer's file cannot show.
class LayerFlags {
 public:
  void add_to(Command verb);
  LoadOptions parse() const;

 private:
  std::string num_heads_, num_kv_heads_, context_length_, prefix_;
  bool causal_ = false, bidirectional_ = false, strict_ = false, allow_extra_ = false;
};

Form parse_form(const std::string& flag, const std::string& text);

// Loads a layer and prints its warnings on stderr.
MultiHeadAttention load_with_warnings(const std::string& path, const LoadOptions& options);

// An output must be a file, and not the input under whatever name.
void check_output(const std::string& output, const std::string& input);

}  // namespace cephalo::cli
