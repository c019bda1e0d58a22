#pragma once

#include <cstddef>
#include <cstdint>

#pragma GCC visibility push(default)
namespace cephalo {

// Element types. Attention is computed on the first four; the rest appear in masks and token ids.
enum class DType : std::uint8_t { f32, f64, bf16, f16, i64, i32, i16, i8, u8, boolean };

const char* name(DType dtype);       // "float32", "bfloat16", "bool" ...
std::size_t item_size(DType dtype);  // bytes of one element

// Is it one of the four that attention is computed on?
inline bool is_floating(DType dtype) {
  return dtype <= DType::f16;
}
// bfloat16 or float16
inline bool is_16_bit_float(DType dtype) {
  return dtype == DType::bf16 || dtype == DType::f16;
}

// What is computed in: float64 for float64, else float32.
inline DType compute_type(DType dtype) {
  return dtype == DType::f64 ? DType::f64 : DType::f32;
}

// 16-bit storage. Arithmetic is never done in these types: they widen to float and round back.
struct BFloat16 {
  std::uint16_t bits;
};
struct Float16 {
  std::uint16_t bits;
};

// Widening is exact. Narrowing rounds to nearest, ties to even; too large becomes infinity, NaN
// stays NaN. One definition serves every instruction set.
float to_float(BFloat16 value);
float to_float(Float16 value);
BFloat16 to_bfloat16(float value);
Float16 to_float16(float value);

// The DType of a C++ type, for typed access to a tensor.
template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct DTypeOf<BFloat16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct DTypeOf<Float16> {
  static constexpr DType value = DType::f16;
};
template <>
struct DTypeOf<std::int64_t> {
  static constexpr DType value = DType::i64;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct DTypeOf<std::int16_t> {
  static constexpr DType value = DType::i16;
};
template <>
struct DTypeOf<std::int8_t> {
  static constexpr DType value = DType::i8;
};
template <>
struct DTypeOf<std::uint8_t> {
  static constexpr DType value = DType::u8;
};
template <>
struct DTypeOf<bool> {
  static constexpr DType value = DType::boolean;
};

}  // namespace cephalo
#pragma GCC visibility pop
