// What the machine gives at most: arithmetic that never leaves the registers, and plain reading.
#include "cephalo/kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cephalo/kernels/cpu/probe.cc"
#include <hwy/foreach_target.h>

#include "cephalo/kernels/cpu/dispatch.h"
#include "cephalo/kernels/cpu/simd-inl.h"
#include "cephalo/kernels/tables.h"

HWY_BEFORE_NAMESPACE();
namespace cephalo::kernels::HWY_NAMESPACE {

// As many chains as a register tile has: two units of four cycles each need eight.
constexpr int kChains = 3 * kRows;
constexpr int kReadChains = 8;
constexpr dim_t kReadStep = dim_t{kReadChains} * kLanes<float>;
constexpr dim_t kLineFloats = 16;
constexpr dim_t kFloatsAhead = 512;  // 2 KiB: within the page, past what hardware asks for

template <int n>
HWY_INLINE float sum_of(const Raw<float> (&chains)[n]) {
  const Tag<float> d;
  Vec<float> sum = hn::Zero(d);
  CEPHALO_UNROLL
  for (int k = 0; k < n; ++k) sum = hn::Add(sum, Vec<float>{chains[k]});
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

HWY_NOINLINE float multiply_add(dim_t steps, float factor, float term) {
  const Tag<float> d;
  const Vec<float> x = hn::Set(d, factor);
  const Vec<float> y = hn::Set(d, term);
  // Chains that begin alike would be computed once.
  Raw<float> chains[kChains];
  CEPHALO_UNROLL
  for (int k = 0; k < kChains; ++k) chains[k] = hn::Set(d, static_cast<float>(k)).raw;
  for (dim_t step = 0; step < steps; ++step) {
    CEPHALO_UNROLL
    for (int k = 0; k < kChains; ++k) chains[k] = hn::MulAdd(Vec<float>{chains[k]}, x, y).raw;
  }
  return sum_of(chains);
}

template <bool ahead>
HWY_INLINE float sum_floats(const float* HWY_RESTRICT from, dim_t count) {
  const Tag<float> d;
  Raw<float> chains[kReadChains];
  CEPHALO_UNROLL
  for (int k = 0; k < kReadChains; ++k) chains[k] = hn::Zero(d).raw;
  dim_t at = 0;
  for (; at + kReadStep <= count; at += kReadStep) {
    if constexpr (ahead) {
      CEPHALO_UNROLL
      for (dim_t line = 0; line < kReadStep; line += kLineFloats) {
        __builtin_prefetch(from + at + kFloatsAhead + line, 0, 3);
      }
    }
    CEPHALO_UNROLL
    for (dim_t k = 0; k < kReadChains; ++k) {
      const Vec<float> x = hn::LoadU(d, from + at + k * kLanes<float>);
      chains[k] = hn::Add(Vec<float>{chains[k]}, x).raw;
    }
  }
  float sum = sum_of(chains);
  for (; at < count; ++at) sum += from[at];
  return sum;
}

HWY_NOINLINE float read(const float* from, dim_t count, bool ahead) {
  return ahead ? sum_floats<true>(from, count) : sum_floats<false>(from, count);
}

void probe_f32(ProbeKernels* table) {
  *table = {2.0 * kChains * kLanes<float>, multiply_add, read};
}

}  // namespace cephalo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cephalo::kernels {
void add_probe_kernels(Isa isa, ProbeKernels* table) {
  CEPHALO_FOR_ISA(isa, probe_f32)(table);
}
}  // namespace cephalo::kernels
#endif
