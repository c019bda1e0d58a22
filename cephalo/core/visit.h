#pragma once

#include <utility>

#include "cephalo/core/dtype.h"
#include "cephalo/core/fail.h"

namespace cephalo {

// One element of storage as arithmetic sees it, and back. 16-bit types go through float.
inline double load(float value) { return value; }
inline double load(double value) { return value; }
inline double load(BFloat16 value) { return to_float(value); }
inline double load(Float16 value) { return to_float(value); }
inline double load(std::int64_t value) { return static_cast<double>(value); }
inline double load(std::int32_t value) { return value; }
inline double load(std::int16_t value) { return value; }
inline double load(std::int8_t value) { return value; }
inline double load(std::uint8_t value) { return value; }
inline double load(bool value) { return value ? 1.0 : 0.0; }

template <typename T>
inline void store(double value, T* to) {
  *to = static_cast<T>(value);
}
inline void store(double value, bool* to) { *to = value != 0.0; }
inline void store(double value, BFloat16* to) { *to = to_bfloat16(static_cast<float>(value)); }
inline void store(double value, Float16* to) { *to = to_float16(static_cast<float>(value)); }

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
