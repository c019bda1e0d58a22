#pragma once

#include <string>

#include "cephalo/train/gradcheck.h"
#include "cli/command.h"

namespace cephalo::cli {

// The flags of gradcheck as they were typed: those of both subjects, those of attend alone and
// those of a layer alone.
struct GradcheckFlags {
  std::string batch = "2", tokens = "6", num_heads = "4", num_kv_heads, kv_tokens, v_dim;
  std::string mask = "causal()", dropout = "0", seed = "0", engine = "automatic";
  std::string eps, atol, rtol;
  bool layer = false, fast = false, json = false;

  std::string q_tokens, head_dim, bias, softcap;

  std::string d_in, d_out, d_kv;
  bool qkv_bias = false, rotary = false, no_out_proj = false;

  void add_to(Command verb);
  void refuse_what_does_not_belong() const;  // a layer's flag without --layer, or the other way

  Mask parse_mask() const;
  Engine parse_engine() const;
  GradcheckOptions parse_check() const;
};

// A size from 1 on; the second one has a default.
dim_t parse_size(const char* flag, const std::string& text);
dim_t parse_size(const char* flag, const std::string& text, dim_t otherwise);

}  // namespace cephalo::cli
