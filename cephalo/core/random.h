#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "cephalo/core/tensor.h"

#pragma GCC visibility push(default)
namespace cephalo {

// PyTorch's CPU generator, bit for bit: after torch.manual_seed(s) the same calls give the same
// numbers here. docs/numerics.md has the recipe.
class TorchGenerator {
 public:
  explicit TorchGenerator(std::uint64_t seed);

  std::uint64_t seed() const { return seed_; }

  std::uint64_t draws() const { return draws_; }  // numbers taken since the seed

  std::uint32_t random() {
    ++draws_;
    return static_cast<std::uint32_t>(engine_());
  }
  std::uint64_t random64();  // the first draw in the high word
  float uniform24() { return static_cast<float>(random() & 0xFFFFFFU) * 0x1p-24F; }
  double uniform53() { return static_cast<double>(random64() & 0x1FFFFFFFFFFFFFU) * 0x1p-53; }
  bool keeps(double probability) { return uniform53() < probability; }  // torch.bernoulli

  // float32 or float64, filled in the tensor's own index order whatever its strides.
  void uniform(const MutableTensorView& out, double from, double to);  // out.uniform_(from, to)
  void normal(const MutableTensorView& out);                           // out.normal_()

  Tensor rand(const Shape& shape, DType dtype = DType::f32);
  Tensor randn(const Shape& shape, DType dtype = DType::f32);
  std::int64_t randint(std::int64_t low, std::int64_t high);  // low <= result < high
  std::vector<std::int64_t> randperm(std::int64_t count);

 private:
  double normal_one();

  std::uint64_t seed_;
  std::mt19937 engine_;
  std::uint64_t draws_ = 0;
  std::optional<double> cached_normal_;
};

// The stream that older PyTorch builds with MKL (before about 2.7, x86) draw dropout from.
class Mcg31 {
 public:
  explicit Mcg31(std::uint32_t seed);
  bool keeps(double probability);

 private:
  std::uint64_t state_;
};

// Philox4x32-10: a pure function from a counter to four words, so any thread can recompute any
// element's random number, in any order.
using PhiloxCounter = std::array<std::uint32_t, 4>;
PhiloxCounter philox(std::uint64_t key, PhiloxCounter counter);

// A seed for one call of a layer: neighbouring calls and layers share nothing visible.
std::uint64_t mix_seed(std::uint64_t layer_seed, std::uint64_t call);

// What a kept element is multiplied by: 1 / (1 - p), rounded as PyTorch rounds it for the type.
inline double dropout_scale(double p, DType dtype) {
  return dtype == DType::f64 ? 1.0 / (1.0 - p) : 1.0F / static_cast<float>(1.0 - p);
}

}  // namespace cephalo
#pragma GCC visibility pop
