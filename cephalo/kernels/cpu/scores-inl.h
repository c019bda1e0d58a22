// Between q · k of a strip of keys and its weights: what is added, what is subtracted, and how far
// away the reference is. Include after simd-inl.h.

#if defined(CEPHALO_KERNELS_CPU_SCORES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef CEPHALO_KERNELS_CPU_SCORES_INL_H
#undef CEPHALO_KERNELS_CPU_SCORES_INL_H
#else
#define CEPHALO_KERNELS_CPU_SCORES_INL_H
#endif

#include "cephalo/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace cephalo::kernels::HWY_NAMESPACE {

// One strip: kRows keys against the tile.
template <typename T>
struct Strip {
  const T* keys;  // [head_dim][kRows]
  dim_t key;      // number of its first key in the block
  dim_t head_dim;
  dim_t width;
  T* weights;  // [kRows][width]
  const TileMask<T>* mask;
  const std::uint64_t* visible;  // [kRows], null: all
};

template <typename T>
HWY_INLINE Vec<T> bias_of(const Strip<T>& strip, int r, int c) {
  return hn::LoadU(Tag<T>(), strip.mask->bias + (strip.key + r) * strip.width + c * kLanes<T>);
}

// `from` less what alibi takes from the score of key r of the strip.
template <typename T>
HWY_INLINE Vec<T> take_alibi(const Strip<T>& strip, Vec<T> from, int r, int c) {
  const Tag<T> d;
  const TileMask<T>& mask = *strip.mask;
  if (mask.slope == T(0)) return from;
  const T first = mask.distance + T(c * kLanes<T>) - T(strip.key + r);
  const Vec<T> distance = hn::Abs(hn::Add(hn::Iota(d, T(0)), hn::Set(d, first)));
  return subtract_alibi<T>(from, mask, distance);
}

// `from` plus what is added to the score of key r of the strip: bias and alibi, turned to base 2.
template <typename T>
HWY_INLINE Vec<T> add_terms(const Strip<T>& strip, Vec<T> from, int r, int c) {
  if (strip.mask->bias != nullptr) from = add_bias_in_base_2<T>(from, bias_of(strip, r, c));
  return take_alibi(strip, from, r, c);
}

template <typename T>
HWY_INLINE Vec<T> softcapped(const Strip<T>& strip, Vec<T> score) {
  const Vec<T> cap = hn::Set(Tag<T>(), strip.mask->softcap);
  return hn::Mul(cap, tanh(hn::Div(score, cap)));
}

// The references of one vector of lanes.
template <typename T>
struct References {
  Vec<T> minus;
  hn::Mask<Tag<T>> far;
};

template <typename T>
HWY_INLINE References<T> references_of(const QueryTile<T, T>& tile, int c) {
  return {hn::LoadU(Tag<T>(), tile.minus_reference + c * kLanes<T>), mask_of<T>(tile.far, c)};
}

// The score less the reference, from q · k. The large parts of a bias and of the reference meet
// first. any_far: some lanes may be.
template <bool any_far, typename T>
HWY_INLINE Vec<T> whole_score(const Strip<T>& strip, Vec<T> score, const References<T>& references,
                              int r, int c) {
  if (strip.mask == nullptr) return hn::Add(score, references.minus);
  if (strip.mask->softcap != T(0)) score = softcapped(strip, score);
  const Vec<T> near = hn::Add(score, add_terms(strip, references.minus, r, c));
  if (!any_far || strip.mask->bias == nullptr) return near;
  const Vec<T> rounded = rounded_score<T>(take_alibi(strip, score, r, c), bias_of(strip, r, c));
  return hn::IfThenElse(references.far, sum_in_base_2<T>(rounded, references.minus), near);
}

// How much alibi alone will still raise the scores of lanes that the keys are coming nearer to: a
// reference that counts on it need not move with every other strip. Bounded, since those keys may
// be hidden and the weights then stay this small.
template <typename T>
HWY_INLINE Vec<T> growth_ahead(const Strip<T>& strip, const QueryTile<T, T>& tile, int c) {
  const Tag<T> d;
  if (tile.no_growth || strip.mask == nullptr || strip.mask->slope == T(0)) return hn::Zero(d);
  constexpr double kMost = 40.0;
  const T first = strip.mask->distance + T(c * kLanes<T>) - T(strip.key + kRows - 1);
  const Vec<T> ahead = hn::Max(hn::Add(hn::Iota(d, T(0)), hn::Set(d, first)), hn::Zero(d));
  return hn::Min(hn::Mul(hn::Set(d, strip.mask->slope), ahead), hn::Set(d, T(kMost)));
}

// The largest visible score of each lane of a strip, twice: in base 2, and where there is a bias in
// natural units, rounded; a bias near the ends of T is too large for base 2.
template <typename T>
struct LargestScores {
  Vec<T> base_2;
  Vec<T> natural;  // base 2 too without a bias
  Vec<T> biased;   // of the key that `natural` is of: q · k and bias alone
  hn::Mask<Tag<T>> nan;

  HWY_INLINE LargestScores()
      : base_2(hn::Set(Tag<T>(), static_cast<T>(-__builtin_inf()))),
        natural(base_2),
        biased(base_2),
        nan(hn::Gt(base_2, base_2)) {}

  // `score`: q · k of key r and column c
  HWY_INLINE void take(const Strip<T>& strip, Vec<T> score, int r, int c) {
    const Tag<T> d;
    const Vec<T> lowest = hn::Set(d, static_cast<T>(-__builtin_inf()));
    const References<T> zero{hn::Zero(d), hn::Gt(lowest, lowest)};
    Vec<T> whole = whole_score<false>(strip, score, zero, r, c);
    Vec<T> rounded = whole;
    Vec<T> without_alibi = whole;
    if (strip.mask != nullptr && strip.mask->bias != nullptr) {
      if (strip.mask->softcap != T(0)) score = softcapped(strip, score);
      without_alibi = rounded_score<T>(score, bias_of(strip, r, c));
      rounded = rounded_score<T>(take_alibi(strip, score, r, c), bias_of(strip, r, c));
    }
    if (strip.visible != nullptr) {
      const auto visible = mask_of<T>(strip.visible[r], c);
      whole = hn::IfThenElse(visible, whole, lowest);
      rounded = hn::IfThenElse(visible, rounded, lowest);
    }
    nan = hn::Or(nan, hn::IsNaN(rounded));
    base_2 = hn::IfThenElse(hn::Gt(whole, base_2), whole, base_2);
    const auto larger = hn::Gt(rounded, natural);
    natural = hn::IfThenElse(larger, rounded, natural);
    biased = hn::IfThenElse(larger, without_alibi, biased);
  }
};

// What weights so far are multiplied by when references move. Where a lane stays far the difference
// is exact; where it becomes or ceases to be, the two are many powers of two apart.
template <typename T>
HWY_INLINE Vec<T> factor_of_move(const References<T>& before, const References<T>& after) {
  const Vec<T> zero = hn::Zero(Tag<T>());
  const Vec<T> from =
      hn::IfThenElse(before.far, sum_in_base_2<T>(before.minus, zero), before.minus);
  const Vec<T> to = hn::IfThenElse(after.far, sum_in_base_2<T>(after.minus, zero), after.minus);
  return exp2<T>(hn::IfThenElse(hn::And(before.far, after.far),
                                sum_in_base_2<T>(after.minus, hn::Neg(before.minus)),
                                hn::Sub(to, from)));
}

// The lanes of column c that are set in a mask of it, as bits of a tile's word.
template <typename T>
HWY_INLINE std::uint64_t bits_of(hn::Mask<Tag<T>> mask, int c) {
  std::uint64_t bits = 0;
  hn::StoreMaskBits(Tag<T>(), mask, reinterpret_cast<std::uint8_t*>(&bits));
  return bits << (c * kLanes<T>);
}

}  // namespace cephalo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
