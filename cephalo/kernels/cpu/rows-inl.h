// Rows of any length as whole vectors: what kernels that work element by element share. Include
// after simd-inl.h.

#if defined(CEPHALO_KERNELS_CPU_ROWS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef CEPHALO_KERNELS_CPU_ROWS_INL_H
#undef CEPHALO_KERNELS_CPU_ROWS_INL_H
#else
#define CEPHALO_KERNELS_CPU_ROWS_INL_H
#endif

#include "cephalo/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace cephalo::kernels::HWY_NAMESPACE {

// The first `count` elements at `from`, `fill` in the lanes after them; count may exceed the lanes.
template <typename T>
HWY_INLINE Vec<T> load_some(const T* from, dim_t count, T fill = T(0)) {
  const Tag<T> d;
  if (HWY_LIKELY(count >= kLanes<T>)) return hn::LoadU(d, from);
  HWY_ALIGN T lanes[kLanes<T>];
  for (dim_t k = 0; k < kLanes<T>; ++k) lanes[k] = k < count ? from[k] : fill;
  return hn::Load(d, lanes);
}

template <typename T>
HWY_INLINE void store_some(Vec<T> value, dim_t count, T* to) {
  const Tag<T> d;
  if (HWY_LIKELY(count >= kLanes<T>)) {
    hn::StoreU(value, d, to);
    return;
  }
  HWY_ALIGN T lanes[kLanes<T>];
  hn::Store(value, d, lanes);
  for (dim_t k = 0; k < count; ++k) to[k] = lanes[k];
}

// The lanes added up in float64, in their order.
template <typename T>
HWY_INLINE double sum_of_lanes(Vec<T> value) {
  HWY_ALIGN T lanes[kLanes<T>];
  hn::Store(value, Tag<T>(), lanes);
  double sum = 0.0;
  for (const T lane : lanes) sum += static_cast<double>(lane);
  return sum;
}

}  // namespace cephalo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
