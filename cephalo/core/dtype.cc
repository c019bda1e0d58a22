#include "cephalo/core/dtype.h"

#include <bit>

namespace cephalo {

const char* name(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "float32";
    case DType::f64:
      return "float64";
    case DType::bf16:
      return "bfloat16";
    case DType::f16:
      return "float16";
    case DType::i64:
      return "int64";
    case DType::i32:
      return "int32";
    case DType::i16:
      return "int16";
    case DType::i8:
      return "int8";
    case DType::u8:
      return "uint8";
    case DType::boolean:
      return "bool";
  }
  return "unknown";
}

std::size_t item_size(DType dtype) {
  switch (dtype) {
    case DType::f64:
    case DType::i64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
    case DType::f16:
    case DType::i16:
      return 2;
    case DType::i8:
    case DType::u8:
    case DType::boolean:
      return 1;
  }
  return 0;
}

float to_float(BFloat16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

BFloat16 to_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  // A NaN whose payload sits in the low half would round to infinity: keep it a quiet NaN.
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) {
    return {static_cast<std::uint16_t>((bits >> 16) | 0x0040U)};
  }
  const std::uint32_t ties_to_even = 0x7FFFU + ((bits >> 16) & 1U);
  return {static_cast<std::uint16_t>((bits + ties_to_even) >> 16)};
}

float to_float(Float16 value) {
  const std::uint32_t sign = (value.bits & 0x8000U) << 16;
  const std::uint32_t exponent = (value.bits >> 10) & 0x1FU;
  const std::uint32_t mantissa = value.bits & 0x3FFU;
  if (exponent == 0) {  // zero or subnormal: mantissa · 2^-24, exact in float
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  if (exponent == 31) {  // infinity or NaN
    return std::bit_cast<float>(sign | 0x7F800000U | (mantissa << 13));
  }
  return std::bit_cast<float>(sign | ((exponent + 112U) << 23) | (mantissa << 13));
}

Float16 to_float16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) {
    const auto payload = static_cast<std::uint16_t>((magnitude >> 13) & 0x3FFU);
    return {static_cast<std::uint16_t>(sign | 0x7E00U | payload)};
  }
  if (magnitude >= 0x477FF000U) return {static_cast<std::uint16_t>(sign | 0x7C00U)};  // >= 65520
  if (magnitude < 0x38800000U) {
    // Below the smallest normal 2^-14: adding 0.5 lines the bits up at 2^-24 and rounds to even.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    const std::uint32_t units = std::bit_cast<std::uint32_t>(shifted) - 0x3F000000U;
    return {static_cast<std::uint16_t>(sign | units)};
  }
  const std::uint32_t ties_to_even = 0xFFFU + ((magnitude >> 13) & 1U);
  const std::uint32_t rebiased = magnitude - 0x38000000U + ties_to_even;
  return {static_cast<std::uint16_t>(sign | (rebiased >> 13))};
}

}  // namespace cephalo
