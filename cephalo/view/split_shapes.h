#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cephalo/core/shape.h"
#include "cephalo/view/split_picture.h"

namespace cephalo {

// What both pictures of a split are drawn from.
struct SplitShapes {
  Shape q;              // [batch, tokens, width]
  Shape split;          // [batch, tokens, num_heads, head_dim]
  Shape heads;          // [batch, num_heads, tokens, head_dim]
  Shape keys;           // [batch, num_kv_heads, head_dim, kv_tokens]: k, transposed for the product
  Shape scores;         // [batch, num_heads, tokens, kv_tokens]
  Shape values;         // [batch, num_kv_heads, kv_tokens, v_dim]
  Shape context_heads;  // [batch, num_heads, tokens, v_dim]
  Shape context;        // [batch, tokens, num_heads · v_dim]
  int tokens_axis;      // of `split`, and that of the heads in `heads`
};
SplitShapes shapes_of(const HeadSplit& split);  // an error where a size is not positive

// The text of one step, the same in both pictures.
struct SplitStep {
  const char* number;
  const char* name;
  std::string formula;
  std::string what;
};
struct SplitSteps {
  SplitStep project, split, transpose, scores, values, concat;
};
SplitSteps steps_of(const HeadSplit& split);

// 0 1 2 … 11: which of `count` things are drawn where there is room for `most` (at least 3); none
// stands for the ones left out.
std::vector<std::optional<dim_t>> shown_of(dim_t count, dim_t most);

// The name of a query, or its number.
std::string token_name(const HeadSplit& split, dim_t i);

}  // namespace cephalo
