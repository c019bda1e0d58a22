#pragma once

#include <string>
#include <vector>

#include "cephalo/attention/attend.h"

namespace cephalo::testing {

struct Sizes {
  dim_t batch = 2;
  dim_t num_heads = 4;
  dim_t num_kv_heads = 2;
  dim_t q_tokens = 0;
  dim_t kv_tokens = 0;
  dim_t head_dim = 0;
  dim_t v_dim = 0;  // 0: head_dim
};
std::string name(const Sizes& sizes);  // "b2/h4:2/97x257x40"
std::string name(Engine engine);       // "fused"

// The sizes that hostile tails need, and those that models have.
const std::vector<Sizes>& odd_sizes();

struct Problem {
  Problem(const Sizes& sizes, DType dtype, DType kv_dtype);
  Problem(const Sizes& sizes, DType dtype) : Problem(sizes, dtype, dtype) {}
  Tensor q, k, v;
};

struct NamedMask {
  std::string name;
  Mask mask;
};

// Every part alone, and combinations that meet in practice.
std::vector<NamedMask> masks_for(const Sizes& sizes);
// Those that every size is tried with.
std::vector<NamedMask> few_masks_for(const Sizes& sizes);

}  // namespace cephalo::testing
