#pragma once

#include <string>
#include <vector>

#include "cephalo/core/random.h"
#include "cephalo/core/tensor.h"

namespace cephalo::testing {

// N(0, 1) numbers as [batch, heads, tokens, dim] in some order of memory, dense or not.
struct RandomSource {
  RandomSource(const Shape& shape, DType dtype, TorchGenerator& generator);
  bool equal_numbers() const;  // one number for all of a row

  int layout;
  Tensor memory;
  TensorView view;
};

dim_t random_tokens(TorchGenerator& generator);  // 1 to 200, mostly few

// None to three parts of a mask that go together, for make_mask_spec.
std::vector<std::string> random_mask_parts(TorchGenerator& generator);

double largest_norm(const TensorView& t);  // the length of the longest row

// What the floor of a bound has for scores, in units of 2⁻²². Sums on the way to a score reach
// S = scale · |q| |k|, so it may be off by S · 2⁻²⁴ and more; where all products are equal their
// roundings do not cancel. Plain code can be exact by luck, where pairs are few or keys equal.
double score_noise(const RandomSource& q, const RandomSource& k, double scale);

}  // namespace cephalo::testing
