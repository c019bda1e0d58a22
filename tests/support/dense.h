#pragma once

#include <type_traits>
#include <vector>

#include "cephalo/core/tensor.h"

namespace cephalo::testing {

// How plain code in T keeps its results: those of long double as double.
template <typename T>
using Stored = std::conditional_t<std::is_same_v<T, float>, float, double>;

// The numbers of t in index order.
template <typename T>
std::vector<T> dense(const TensorView& t) {
  const Tensor copy = Tensor::copy(t, DTypeOf<Stored<T>>::value);
  const Stored<T>* data = copy.template data_as<Stored<T>>();
  return {data, data + copy.numel()};
}

}  // namespace cephalo::testing
