#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "cephalo/core/dtype.h"
#include "cephalo/kernels/sizes.h"
#include "cephalo/kernels/tables.h"

// What tests of single kernels share: numbers, memory with fences, rows as callers keep them. The
// kernels are those of the instruction set in use; ctest runs the program once for each.
namespace cephalo::kernels::testing {

// Fixture of what exists for both types of numbers.
template <typename T>
struct KernelTest : ::testing::Test {
  static constexpr double kEpsilon = std::numeric_limits<T>::epsilon();
  static const AttendKernels<T, T>& attend() { return *attend_kernels<T, T>(isa_for<T>()); }
  static dim_t lanes() { return attend().lanes; }
  static dim_t rows() { return attend().rows; }
  static dim_t most() { return 2 * lanes() + 1; }  // every tail of a loop over vectors is below it
};
using NumberTypes = ::testing::Types<float, double>;

constexpr DType kStorageTypes[] = {DType::f32, DType::f64, DType::bf16, DType::f16};

// The same numbers in every run.
class Numbers {
 public:
  explicit Numbers(std::uint32_t seed) : engine_(seed) {}
  double uniform(double from, double to) {
    return from + (to - from) * static_cast<double>(engine_()) * 0x1p-32;
  }
  dim_t integer(dim_t from, dim_t to) {  // from <= result < to
    return from + static_cast<dim_t>(engine_() % static_cast<std::uint32_t>(to - from));
  }
  std::uint64_t bits() { return std::uint64_t{engine_()} << 32 | engine_(); }

 private:
  std::mt19937 engine_;
};

// `count` numbers between two fences. All memory is huge numbers at first, so what is read beyond
// the end, or before it was written, spoils a result; what is written beyond breaks a fence.
template <typename T>
class Guarded {
 public:
  static constexpr unsigned char kByte = 0x71;  // everywhere: 1e30 as float, 1e238 as double

  explicit Guarded(dim_t count)
      : memory_(static_cast<std::size_t>(count + 2 * kFence) * sizeof(T), kByte), count_(count) {}
  Guarded(dim_t count, Numbers& numbers, double from = -1.0, double to = 1.0) : Guarded(count) {
    for (dim_t k = 0; k < count; ++k) (*this)[k] = static_cast<T>(numbers.uniform(from, to));
  }
  static Guarded filled(dim_t count, T value) {
    Guarded result(count);
    for (dim_t k = 0; k < count; ++k) result[k] = value;
    return result;
  }

  T* data() { return reinterpret_cast<T*>(memory_.data()) + kFence; }
  const T* data() const { return reinterpret_cast<const T*>(memory_.data()) + kFence; }
  dim_t count() const { return count_; }
  T& operator[](dim_t k) { return data()[k]; }
  const T& operator[](dim_t k) const { return data()[k]; }
  bool same_bits(const Guarded& other) const { return memory_ == other.memory_; }

  bool fences_stand() const { return untouched(-kFence, 0) && untouched(count_, count_ + kFence); }
  // Were elements [begin, end) never written?
  bool untouched(dim_t begin, dim_t end) const {
    for (dim_t at = (begin + kFence) * kSize; at < (end + kFence) * kSize; ++at) {
      if (memory_[static_cast<std::size_t>(at)] != kByte) return false;
    }
    return true;
  }

 private:
  static constexpr dim_t kFence = 67;  // odd: vectors are never aligned by chance
  static constexpr dim_t kSize = sizeof(T);
  std::vector<unsigned char> memory_;
  dim_t count_;
};

// count rows of dim elements, `stride` apart, in an order of their own; gaps hold huge numbers.
class StoredRows {
 public:
  StoredRows(dim_t count, dim_t dim, dim_t stride, DType dtype, Numbers& numbers)
      : memory_(round_up(count * dim * stride * static_cast<dim_t>(item_size(dtype)), 8) / 8),
        addresses_(static_cast<std::size_t>(count)),
        rows_{addresses_.data(), count, dim, stride, dtype} {
    const dim_t row_bytes = dim * stride * static_cast<dim_t>(item_size(dtype));
    for (dim_t r = 0; r < count; ++r) {
      auto* first = reinterpret_cast<unsigned char*>(memory_.data());
      addresses_[static_cast<std::size_t>(r)] = first + (count - 1 - r) * row_bytes;
      for (dim_t k = 0; k < dim; ++k) set(r, k, numbers.uniform(-1.0, 1.0));
    }
  }
  StoredRows(const StoredRows&) = delete;
  StoredRows& operator=(const StoredRows&) = delete;

  const Rows& rows() const { return rows_; }

  // Nothing but elements was written?
  bool gaps_untouched() const {
    if (!memory_.fences_stand()) return false;
    const auto size = static_cast<dim_t>(item_size(rows_.dtype));
    const auto* bytes = reinterpret_cast<const unsigned char*>(memory_.data());
    for (dim_t at = 0; at < rows_.count * rows_.dim * rows_.stride * size; ++at) {
      if (at / size % rows_.stride != 0 && bytes[at] != Guarded<double>::kByte) return false;
    }
    return true;
  }

  double at(dim_t r, dim_t k) const {
    switch (rows_.dtype) {
      case DType::f32:
        return double{*element<float>(r, k)};
      case DType::f64:
        return *element<double>(r, k);
      case DType::bf16:
        return double{to_float(*element<BFloat16>(r, k))};
      default:
        return double{to_float(*element<Float16>(r, k))};
    }
  }

  void set(dim_t r, dim_t k, double value) {
    switch (rows_.dtype) {
      case DType::f32:
        *element<float>(r, k) = static_cast<float>(value);
        break;
      case DType::f64:
        *element<double>(r, k) = value;
        break;
      case DType::bf16:
        *element<BFloat16>(r, k) = to_bfloat16(static_cast<float>(value));
        break;
      default:
        *element<Float16>(r, k) = to_float16(static_cast<float>(value));
    }
  }

 private:
  template <typename T>
  T* element(dim_t r, dim_t k) const {
    void* row = const_cast<void*>(addresses_[static_cast<std::size_t>(r)]);
    return static_cast<T*>(row) + k * rows_.stride;
  }

  Guarded<double> memory_;  // whatever the elements are, they are aligned
  std::vector<const void*> addresses_;
  Rows rows_;
};

template <typename T>
bool same_number(T a, T b) {  // NaN is NaN, and −0 is not 0
  return (std::isnan(a) && std::isnan(b)) || std::memcmp(&a, &b, sizeof(T)) == 0;
}

}  // namespace cephalo::kernels::testing
