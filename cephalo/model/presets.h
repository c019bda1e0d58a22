#pragma once

#include <span>
#include <string>
#include <vector>

#include "cephalo/attention/layer/multi_head.h"

#pragma GCC visibility push(default)
namespace cephalo {

// The sizes of a well-known model, under the names that people call it by.
struct ModelSizes {
  const char* name;        // "gpt2-small"
  const char* other_name;  // "gpt2"; or ""
  const char* parameters;  // as published: "124M"; a name as well
  dim_t num_layers;
  dim_t d_model;
  dim_t num_heads;
  dim_t context_length;
};

// GPT-2 and GPT-3, small to large. The GPT-3 paper's table has two numbers that do not multiply
// (24 heads of 128 in 2048, and a width of 5140): here 16 heads, and 5120.
std::span<const ModelSizes> model_sizes();

// By any of the three names; an error that begins with `function` and lists the first ones.
const ModelSizes& find_model_sizes(const std::string& name, const char* function);

// The attention layer of such a model.
MultiHeadAttentionOptions preset(const std::string& name);
const std::vector<std::string>& preset_names();  // the first of each model's names

}  // namespace cephalo
#pragma GCC visibility pop
