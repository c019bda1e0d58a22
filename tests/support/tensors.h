#pragma once

#include <cstdint>
#include <string>

#include "cephalo/core/tensor.h"

namespace cephalo::testing {

// N(0, 1) numbers in any floating type, contiguous.
Tensor normal(const Shape& shape, std::uint64_t seed, DType dtype = DType::f32);

bool same_bits(const TensorView& a, const TensorView& b);
double largest_difference(const TensorView& a, const TensorView& b);  // NaN counts as infinity
double largest_magnitude(const TensorView& t);
bool all_finite(const TensorView& t);
bool all_zero(const TensorView& t);

// Prints a figure that a run should show, and appends it to the file $CEPHALO_REPORT: ctest itself
// shows nothing of tests that pass.
void report(const std::string& line);

// What the function throws, as text; empty when it throws nothing.
template <typename F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace cephalo::testing
