#pragma once

#include <cstdint>
#include <vector>

#include "cephalo/core/tensor.h"

#pragma GCC visibility push(default)
namespace cephalo {

// A token that may come next.
struct Prediction {
  std::int64_t id;
  double probability;
};

// logits: [vocab_size] -> the likeliest `count`, the first one first; equal ones by their ids
std::vector<Prediction> likeliest(const TensorView& logits, dim_t count);

}  // namespace cephalo
#pragma GCC visibility pop
