#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "cephalo/core/dtype.h"
#include "cephalo/core/fail.h"

namespace cephalo {

// One element of storage as arithmetic sees it, and back. 16-bit types go through float.
inline double load(float value) {
  return value;
}
inline double load(double value) {
  return value;
}
inline double load(BFloat16 value) {
  return to_float(value);
}
inline double load(Float16 value) {
  return to_float(value);
}
inline double load(std::int64_t value) {
  return static_cast<double>(value);
}
inline double load(std::int32_t value) {
  return value;
}
inline double load(std::int16_t value) {
  return value;
}
inline double load(std::int8_t value) {
  return value;
}
inline double load(std::uint8_t value) {
  return value;
}
inline double load(bool value) {
  return value ? 1.0 : 0.0;
}

inline void store(double value, float* to) {
  *to = static_cast<float>(value);
}
inline void store(double value, double* to) {
  *to = value;
}
// Integers take the nearest number that they have; NaN becomes 0.
template <typename T>
inline void store(double value, T* to) {
  constexpr auto kLow = static_cast<double>(std::numeric_limits<T>::min());
  constexpr auto kHigh = static_cast<double>(std::numeric_limits<T>::max());
  if (value >= kHigh) {
    *to = std::numeric_limits<T>::max();
  } else if (value <= kLow) {
    *to = std::numeric_limits<T>::min();
  } else {
    *to = std::isnan(value) ? T{0} : static_cast<T>(value);
  }
}
inline void store(double value, bool* to) {
  *to = value != 0.0;
}
// float64 to float32 such that a second rounding to 16 bits rounds as one would: what float32
// cannot hold is kept as an odd last bit.
inline float round_to_odd(double value) {
  auto near = static_cast<float>(value);
  if (static_cast<double>(near) == value || std::isnan(value)) return near;
  if (std::abs(static_cast<double>(near)) > std::abs(value)) near = std::nextafter(near, 0.0F);
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(near) | 1U);
}
inline void store(double value, BFloat16* to) {
  *to = to_bfloat16(round_to_odd(value));
}
inline void store(double value, Float16* to) {
  *to = to_float16(round_to_odd(value));
}

// Calls f with a value of the C++ type behind `dtype`: visit_dtype(d, [&](auto zero) { ... }).
template <typename F>
decltype(auto) visit_dtype(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32:
      return f(float{});
    case DType::f64:
      return f(double{});
    case DType::bf16:
      return f(BFloat16{});
    case DType::f16:
      return f(Float16{});
    case DType::i64:
      return f(std::int64_t{});
    case DType::i32:
      return f(std::int32_t{});
    case DType::i16:
      return f(std::int16_t{});
    case DType::i8:
      return f(std::int8_t{});
    case DType::u8:
      return f(std::uint8_t{});
    case DType::boolean:
      return f(bool{});
  }
  fail(Error::Kind::type, "unknown element type {}", static_cast<int>(dtype));
}

}  // namespace cephalo
