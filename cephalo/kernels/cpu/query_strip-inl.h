// Queries down the rows, keys in the lanes: what the backward pass and second derivatives share.
// Include after simd-inl.h.

#if defined(CEPHALO_KERNELS_CPU_QUERY_STRIP_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef CEPHALO_KERNELS_CPU_QUERY_STRIP_INL_H
#undef CEPHALO_KERNELS_CPU_QUERY_STRIP_INL_H
#else
#define CEPHALO_KERNELS_CPU_QUERY_STRIP_INL_H
#endif

#include "cephalo/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace cephalo::kernels::HWY_NAMESPACE {

// One strip: kRows queries against the tile of keys.
template <typename T>
struct QueryStrip {
  dim_t query;  // number of its first query in the block
  dim_t width;
  const TileMask<T>* mask;
  const std::uint64_t* visible;  // [kRows], null: all
  const std::uint8_t* far;       // [kRows], null: none
};

template <typename T>
HWY_INLINE QueryStrip<T> strip_at(dim_t query, const QueryBlock<T, T>& block,
                                  const KeyTile<T>& tile, const TileMask<T>* mask) {
  const bool bits = mask != nullptr && mask->visible != nullptr;
  return {query, tile.columns * kLanes<T>, mask, bits ? mask->visible + query : nullptr,
          block.far == nullptr ? nullptr : block.far + query};
}

template <typename T>
HWY_INLINE Vec<T> only_visible(const QueryStrip<T>& strip, int r, int c, Vec<T> x) {
  if (strip.visible == nullptr) return x;
  return hn::IfThenElseZero(mask_of<T>(strip.visible[r], c), x);
}

// The slope of c · tanh(s / c), from that tanh.
template <typename T>
HWY_INLINE Vec<T> softcap_slope(Vec<T> tanh) {
  return hn::NegMulAdd(tanh, tanh, hn::Set(Tag<T>(), T(1)));
}

}  // namespace cephalo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
