// Softcap: scores become softcap · tanh(score / softcap).
#pragma once

#include "cephalo/kernels/cuda/hopper.cuh"

namespace cephalo::kernels::cuda {

constexpr float kLog2e = 1.44269504F, kLn2 = 0.69314718F;

__device__ inline float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// tanh.approx misses by 2^-11. Near 0 the difference from 1 has no digits left: a series has.
__device__ inline float tanh_by_exp2(float x) {
  const float square = x * x;
  const float series = x * fmaf(square, fmaf(square, 2.0F / 15.0F, -1.0F / 3.0F), 1.0F);
  const float far = 1.0F - 2.0F * reciprocal(1.0F + hopper::exp2_approx(2.0F * kLog2e * x));
  return fabsf(x) < 0.125F ? series : far;
}

// Scores become softcap · tanh(score / softcap); slope(n, 1 − tanh²) is told by what the gradient
// of the n-th is multiplied. kExact: to float32's last digits.
template <bool kExact, int kCount, typename Slope>
__device__ inline void cap_scores(float softcap, float (&x)[kCount], const Slope& slope) {
  const float inverse = reciprocal(softcap);
#pragma unroll
  for (int n = 0; n < kCount; ++n) {
    const float t = kExact ? tanhf(x[n] / softcap) : tanh_by_exp2(x[n] * inverse);
    x[n] = softcap * t;
    slope(n, fmaf(-t, t, 1.0F));
  }
}

}  // namespace cephalo::kernels::cuda
