// One element of any type, as the type that sums are made in.
#pragma once

#include "cephalo/kernels/cuda/problem.h"

namespace cephalo::kernels::cuda {

__device__ inline float from_bf16(std::uint16_t x) {
  return __uint_as_float(static_cast<std::uint32_t>(x) << 16);
}
__device__ inline float from_f16(std::uint16_t x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
  return y;
}
__device__ inline std::uint16_t to_bf16(float x) {
  std::uint16_t y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
  return y;
}
__device__ inline std::uint16_t to_f16(float x) {
  std::uint16_t y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
  return y;
}

template <typename Sum>
__device__ inline Sum load(const void* data, DType dtype, std::int64_t at) {
  switch (dtype) {
    case DType::f32:
      return static_cast<Sum>(static_cast<const float*>(data)[at]);
    case DType::f64:
      return static_cast<Sum>(static_cast<const double*>(data)[at]);
    case DType::bf16:
      return static_cast<Sum>(from_bf16(static_cast<const std::uint16_t*>(data)[at]));
    default:
      return static_cast<Sum>(from_f16(static_cast<const std::uint16_t*>(data)[at]));
  }
}

template <typename Sum>
__device__ inline void store(void* data, DType dtype, std::int64_t at, Sum x) {
  switch (dtype) {
    case DType::f32:
      static_cast<float*>(data)[at] = static_cast<float>(x);
      return;
    case DType::f64:
      static_cast<double*>(data)[at] = static_cast<double>(x);
      return;
    case DType::bf16:
      static_cast<std::uint16_t*>(data)[at] = to_bf16(static_cast<float>(x));
      return;
    default:
      static_cast<std::uint16_t*>(data)[at] = to_f16(static_cast<float>(x));
  }
}

// Of a mask's tensor, whose elements are integers or bool.
__device__ inline bool nonzero(const void* data, DType dtype, std::int64_t at) {
  switch (dtype) {
    case DType::i64:
      return static_cast<const std::int64_t*>(data)[at] != 0;
    case DType::i32:
      return static_cast<const std::int32_t*>(data)[at] != 0;
    case DType::i16:
      return static_cast<const std::int16_t*>(data)[at] != 0;
    default:
      return static_cast<const std::uint8_t*>(data)[at] != 0;
  }
}

// Row (b, h, i) of any tensor: where it begins, and its columns.
struct Row {
  const void* data;
  DType dtype;
  std::int64_t first, step;

  template <typename Sum>
  __device__ Sum at(std::int64_t d) const {
    return load<Sum>(data, dtype, first + d * step);
  }
  template <typename Sum>
  __device__ void set(std::int64_t d, Sum x) const {
    store(const_cast<void*>(data), dtype, first + d * step, x);
  }
  // Columns d and d + 1, d even, where there are so many; float32 neighbours at once.
  __device__ void set_two(int d, int columns, float x, float y) const {
    auto* to = static_cast<float*>(const_cast<void*>(data)) + first + d;
    if (dtype == DType::f32 && step == 1 && d + 1 < columns &&
        reinterpret_cast<std::uintptr_t>(to) % sizeof(float2) == 0) {
      *reinterpret_cast<float2*>(to) = {x, y};
      return;
    }
    if (d < columns) set(d, x);
    if (d + 1 < columns) set(d + 1, y);
  }
};
__device__ inline Row row_of(const Rows& t, std::int64_t b, std::int64_t h, std::int64_t i) {
  return {t.data, t.dtype, b * t.stride[0] + h * t.stride[1] + i * t.stride[2], t.stride[3]};
}

template <typename Sum>
__device__ inline Sum dot(const Row& x, const Row& y, std::int64_t count) {
  Sum sum = 0;
  for (std::int64_t d = 0; d < count; ++d) sum = fma(x.at<Sum>(d), y.at<Sum>(d), sum);
  return sum;
}

}  // namespace cephalo::kernels::cuda
