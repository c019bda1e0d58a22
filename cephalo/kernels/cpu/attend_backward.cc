// Weights, gradients of scores and dq of one block of queries against one tile of keys.
#include "cephalo/kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cephalo/kernels/cpu/attend_backward.cc"
#include <hwy/foreach_target.h>

#include "cephalo/kernels/cpu/dispatch.h"
#include "cephalo/kernels/cpu/query_strip-inl.h"
#include "cephalo/kernels/cpu/simd-inl.h"
#include "cephalo/kernels/tables.h"

HWY_BEFORE_NAMESPACE();
namespace cephalo::kernels::HWY_NAMESPACE {

template <typename T>
HWY_INLINE Vec<T> bias_of(const QueryStrip<T>& strip, int r, int c) {
  return hn::LoadU(Tag<T>(), strip.mask->bias + (strip.query + r) * strip.width + c * kLanes<T>);
}

// `from` less what alibi takes from the scores of query r of the strip.
template <typename T>
HWY_INLINE Vec<T> take_alibi(const QueryStrip<T>& strip, Vec<T> from, int r, int c) {
  const Tag<T> d;
  const TileMask<T>& mask = *strip.mask;
  if (mask.slope == T(0)) return from;
  const Vec<T> keys = hn::Iota(d, T(c * kLanes<T>));
  const Vec<T> distance = hn::Abs(hn::Sub(hn::Set(d, mask.distance + T(strip.query + r)), keys));
  return subtract_alibi<T>(from, mask, distance);
}

// score − lse of query r of the strip in base 2, with what is added to the score: bias and alibi.
template <typename T>
HWY_INLINE Vec<T> whole_score(const QueryStrip<T>& strip, Vec<T> score, T minus_lse, int r, int c) {
  const Tag<T> d;
  const bool has_bias = strip.mask->bias != nullptr;
  if (HWY_UNLIKELY(has_bias && strip.far != nullptr && strip.far[r] != 0)) {
    const Vec<T> rounded = rounded_score<T>(take_alibi(strip, score, r, c), bias_of(strip, r, c));
    return sum_in_base_2<T>(rounded, hn::Set(d, minus_lse));
  }
  Vec<T> from = hn::Set(d, minus_lse);
  if (has_bias) from = add_bias_in_base_2<T>(from, bias_of(strip, r, c));
  return hn::Add(score, take_alibi(strip, from, r, c));
}

// Weights of a strip in which a bias, alibi or a softcap applies, from scores that were stored.
template <typename T>
HWY_NOINLINE void reweigh_stored(const QueryStrip<T>& strip, StripColumns columns,
                                 const T* minus_lse, T* weights, T* tanhs) {
  const Tag<T> d;
  const T softcap = strip.mask->softcap;
  for (int r = 0; r < kRows; ++r) {
    for (int c = columns.first; c < columns.first + columns.count; ++c) {
      const dim_t at = r * strip.width + c * kLanes<T>;
      Vec<T> score = hn::LoadU(d, weights + at);
      if (softcap != T(0)) {
        const Vec<T> capped = tanh(hn::Div(score, hn::Set(d, softcap)));
        score = hn::Mul(hn::Set(d, softcap), capped);
        hn::StoreU(capped, d, tanhs + at);
      }
      score = exp2<T>(whole_score(strip, score, minus_lse[r], r, c));
      hn::StoreU(only_visible(strip, r, c, score), d, weights + at);
    }
  }
}

// Accumulators of row r begin at numbers[r]; or at 0 where that number is added later.
template <int n, Between between, typename T>
HWY_INLINE void begin_rows(const T* numbers, Raw<T> (&sums)[kRows][n]) {
  const Tag<T> d;
  CEPHALO_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const Vec<T> begin = between == Between::terms ? hn::Zero(d) : hn::Set(d, numbers[r]);
    CEPHALO_UNROLL
    for (int c = 0; c < n; ++c) sums[r][c] = begin.raw;
  }
}

// weights of n columns from c0 on; q: [head_dim][kRows], minus_lse: [kRows]
template <int n, Between between, typename T>
HWY_INLINE void reweigh_strip(const QueryStrip<T>& strip, const T* q, dim_t head_dim, const T* keys,
                              int c0, const T* minus_lse, T* weights, T* tanhs) {
  const Tag<T> d;
  constexpr int kN = kLanes<T>;
  Raw<T> scores[kRows][n];
  begin_rows<n, between, T>(minus_lse, scores);
  multiply<n, T>(q, keys + c0 * kN, strip.width, head_dim, scores);
  CEPHALO_UNROLL
  for (int r = 0; r < kRows; ++r) {
    CEPHALO_UNROLL
    for (int c = 0; c < n; ++c) {
      Vec<T> x{scores[r][c]};
      if constexpr (between != Between::terms) x = exp2<T>(x);
      if constexpr (between == Between::bits) {
        x = hn::IfThenElseZero(mask_of<T>(strip.visible[r], c0 + c), x);
      }
      hn::StoreU(x, d, weights + r * strip.width + (c0 + c) * kN);
    }
  }
  if constexpr (between == Between::terms) {
    const StripColumns columns{static_cast<std::uint8_t>(c0), n};
    reweigh_stored(strip, columns, minus_lse, weights, tanhs);
  }
}

template <Between between, typename T>
HWY_INLINE void reweigh_columns(const QueryStrip<T>& strip, const QueryBlock<T, T>& block,
                                const KeyTile<T>& tile, StripColumns columns, T* weights,
                                T* tanhs) {
  const T* q = block.q + strip.query * block.head_dim;
  const T* minus_lse = block.minus_lse + strip.query;
  switch (columns.count) {
    case 3:
      return reweigh_strip<3, between>(strip, q, block.head_dim, tile.keys, columns.first,
                                       minus_lse, weights, tanhs);
    case 2:
      return reweigh_strip<2, between>(strip, q, block.head_dim, tile.keys, columns.first,
                                       minus_lse, weights, tanhs);
    default:
      return reweigh_strip<1, between>(strip, q, block.head_dim, tile.keys, columns.first,
                                       minus_lse, weights, tanhs);
  }
}

template <typename T>
HWY_NOINLINE void reweigh(const QueryBlock<T, T>& block, const KeyTile<T>& tile,
                          const TileMask<T>* mask, T* weights, T* tanhs, StripColumns* strips) {
  for (dim_t query = 0; query < block.count; query += kRows) {
    const QueryStrip<T> strip = strip_at(query, block, tile, mask);
    const StripColumns columns = columns_of<T>(strip.visible, tile.columns);
    strips[query / kRows] = columns;
    if (columns.count == 0) continue;
    T* to = weights + query * strip.width;
    T* tanh_at = tanhs + query * strip.width;
    switch (between_of(mask, strip.visible != nullptr)) {
      case Between::terms:
        reweigh_columns<Between::terms>(strip, block, tile, columns, to, tanh_at);
        break;
      case Between::bits:
        reweigh_columns<Between::bits>(strip, block, tile, columns, to, tanh_at);
        break;
      default:
        reweigh_columns<Between::nothing>(strip, block, tile, columns, to, tanh_at);
    }
  }
}

// What a mask does to the gradient of scores: dropout and the slope of the softcap.
// dscores holds dcontext · v, without −delta.
template <typename T>
HWY_NOINLINE void differentiate_stored(const QueryStrip<T>& strip, StripColumns columns,
                                       const T* minus_delta, const T* tanhs, T* weights,
                                       T* dscores) {
  const Tag<T> d;
  const TileMask<T>& mask = *strip.mask;
  for (int r = 0; r < kRows; ++r) {
    for (int c = columns.first; c < columns.first + columns.count; ++c) {
      const dim_t at = r * strip.width + c * kLanes<T>;
      const Vec<T> weight = hn::LoadU(d, weights + at);
      Vec<T> dweight = hn::LoadU(d, dscores + at);
      if (mask.kept != nullptr) {
        const auto kept = mask_of<T>(mask.kept[strip.query + r], c);
        const Vec<T> grown = hn::Set(d, mask.grown);
        dweight = hn::IfThenElseZero(kept, hn::Mul(dweight, grown));
        hn::StoreU(hn::IfThenElseZero(kept, hn::Mul(weight, grown)), d, weights + at);
      }
      Vec<T> dscore = hn::Mul(weight, hn::Add(dweight, hn::Set(d, minus_delta[r])));
      if (mask.softcap != T(0)) {
        dscore = hn::Mul(dscore, softcap_slope<T>(hn::LoadU(d, tanhs + at)));
      }
      hn::StoreU(only_visible(strip, r, c, dscore), d, dscores + at);
    }
  }
}

// dscores of n columns from c0 on; dcontext: [v_dim][kRows], minus_delta: [kRows]
template <int n, Between between, typename T>
HWY_INLINE void differentiate_strip(const QueryStrip<T>& strip, const T* dcontext, dim_t v_dim,
                                    const T* values, int c0, const T* minus_delta, const T* tanhs,
                                    T* weights, T* dscores) {
  const Tag<T> d;
  constexpr int kN = kLanes<T>;
  Raw<T> sums[kRows][n];
  begin_rows<n, between, T>(minus_delta, sums);
  multiply<n, T>(dcontext, values + c0 * kN, strip.width, v_dim, sums);
  CEPHALO_UNROLL
  for (int r = 0; r < kRows; ++r) {
    CEPHALO_UNROLL
    for (int c = 0; c < n; ++c) {
      const dim_t at = r * strip.width + (c0 + c) * kN;
      Vec<T> x{sums[r][c]};
      if constexpr (between != Between::terms) x = hn::Mul(x, hn::LoadU(d, weights + at));
      // A hidden weight is 0, but what it multiplies may be no number.
      if constexpr (between == Between::bits) {
        x = hn::IfThenElseZero(mask_of<T>(strip.visible[r], c0 + c), x);
      }
      hn::StoreU(x, d, dscores + at);
    }
  }
  if constexpr (between == Between::terms) {
    const StripColumns columns{static_cast<std::uint8_t>(c0), n};
    differentiate_stored(strip, columns, minus_delta, tanhs, weights, dscores);
  }
}

template <Between between, typename T>
HWY_INLINE void differentiate_columns(const QueryStrip<T>& strip, const QueryBlock<T, T>& block,
                                      const KeyTile<T>& tile, StripColumns columns, const T* tanhs,
                                      T* weights, T* dscores) {
  const T* dcontext = block.dcontext + strip.query * block.v_dim;
  const T* minus_delta = block.minus_delta + strip.query;
  switch (columns.count) {
    case 3:
      return differentiate_strip<3, between>(strip, dcontext, block.v_dim, tile.values,
                                             columns.first, minus_delta, tanhs, weights, dscores);
    case 2:
      return differentiate_strip<2, between>(strip, dcontext, block.v_dim, tile.values,
                                             columns.first, minus_delta, tanhs, weights, dscores);
    default:
      return differentiate_strip<1, between>(strip, dcontext, block.v_dim, tile.values,
                                             columns.first, minus_delta, tanhs, weights, dscores);
  }
}

template <typename T>
HWY_NOINLINE void differentiate(const QueryBlock<T, T>& block, const KeyTile<T>& tile,
                                const TileMask<T>* mask, const StripColumns* strips, const T* tanhs,
                                T* weights, T* dscores) {
  const bool terms = mask != nullptr && (mask->kept != nullptr || mask->softcap != T(0));
  for (dim_t query = 0; query < block.count; query += kRows) {
    const QueryStrip<T> strip = strip_at(query, block, tile, mask);
    const StripColumns columns = strips[query / kRows];
    if (columns.count == 0) continue;
    const dim_t at = query * strip.width;
    if (terms) {
      differentiate_columns<Between::terms>(strip, block, tile, columns, tanhs + at, weights + at,
                                            dscores + at);
    } else if (strip.visible != nullptr) {
      differentiate_columns<Between::bits>(strip, block, tile, columns, tanhs + at, weights + at,
                                           dscores + at);
    } else {
      differentiate_columns<Between::nothing>(strip, block, tile, columns, tanhs + at, weights + at,
                                              dscores + at);
    }
  }
}

// dq[r] += Σ over keys [begin, end) of dscores[r][key] · key_rows[key], n vectors of each.
template <int n, typename T>
HWY_INLINE void add_dq_strip(const T* HWY_RESTRICT dscores, dim_t width,
                             const T* HWY_RESTRICT key_rows, dim_t key_stride, dim_t begin,
                             dim_t end, T* HWY_RESTRICT dq) {
  const Tag<T> d;
  Raw<T> sums[kRows][n];
  CEPHALO_UNROLL
  for (int r = 0; r < kRows; ++r) {
    CEPHALO_UNROLL
    for (int c = 0; c < n; ++c) sums[r][c] = hn::LoadU(d, dq + r * key_stride + c * kLanes<T>).raw;
  }
#if !defined(__clang__)
#pragma GCC unroll 4
#endif
  for (dim_t key = begin; key < end; ++key) {
    Raw<T> x[n];
    CEPHALO_UNROLL
    for (int c = 0; c < n; ++c) {
      x[c] = hn::LoadU(d, key_rows + key * key_stride + c * kLanes<T>).raw;
    }
    CEPHALO_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const Vec<T> w = hn::Set(d, dscores[r * width + key]);
      CEPHALO_UNROLL
      for (int c = 0; c < n; ++c) {
        sums[r][c] = hn::MulAdd(w, Vec<T>{x[c]}, Vec<T>{sums[r][c]}).raw;
      }
    }
  }
  CEPHALO_UNROLL
  for (int r = 0; r < kRows; ++r) {
    CEPHALO_UNROLL
    for (int c = 0; c < n; ++c) {
      hn::StoreU(Vec<T>{sums[r][c]}, d, dq + r * key_stride + c * kLanes<T>);
    }
  }
}

// The same where a hidden key may be NaN or infinite, and 0 times it would be NaN.
template <typename T>
HWY_NOINLINE void add_dq_visible(const QueryStrip<T>& strip, const KeyTile<T>& tile,
                                 const T* dscores, T* dq) {
  const Tag<T> d;
  for (int r = 0; r < kRows; ++r) {
    for (dim_t key = 0; key < tile.count; ++key) {
      if ((strip.visible[r] >> key & 1) == 0) continue;
      const Vec<T> w = hn::Set(d, dscores[r * strip.width + key]);
      for (dim_t k = 0; k < tile.key_stride; k += kLanes<T>) {
        T* to = dq + r * tile.key_stride + k;
        const Vec<T> x = hn::LoadU(d, tile.key_rows + key * tile.key_stride + k);
        hn::StoreU(hn::MulAdd(w, x, hn::LoadU(d, to)), d, to);
      }
    }
  }
}

template <typename T>
HWY_NOINLINE void add_dq(const QueryBlock<T, T>& block, const KeyTile<T>& tile,
                         const TileMask<T>* mask, const StripColumns* strips, const T* dscores,
                         T* dq) {
  constexpr dim_t kN = kLanes<T>;
  const dim_t vectors = tile.key_stride / kN;
  for (dim_t query = 0; query < block.count; query += kRows) {
    const StripColumns columns = strips[query / kRows];
    if (columns.count == 0) continue;
    const QueryStrip<T> strip = strip_at(query, block, tile, mask);
    const T* from = dscores + query * strip.width;
    T* to = dq + query * tile.key_stride;
    if (HWY_UNLIKELY(!tile.finite_keys && strip.visible != nullptr)) {
      add_dq_visible(strip, tile, from, to);
      continue;
    }
    const dim_t begin = columns.first * kN;
    const dim_t last = begin + columns.count * kN;
    const dim_t end = last < tile.count ? last : tile.count;
    for (dim_t v = 0; v < vectors;) {
      const T* key_rows = tile.key_rows + v * kN;
      const dim_t left = vectors - v;
      // Four vectors are two and two rather than three and one.
      if (left == 3 || left > 4) {
        add_dq_strip<3>(from, strip.width, key_rows, tile.key_stride, begin, end, to + v * kN);
        v += 3;
      } else if (left >= 2) {
        add_dq_strip<2>(from, strip.width, key_rows, tile.key_stride, begin, end, to + v * kN);
        v += 2;
      } else {
        add_dq_strip<1>(from, strip.width, key_rows, tile.key_stride, begin, end, to + v * kN);
        v += 1;
      }
    }
  }
}

template <typename T>
void fill_backward(BackwardKernels<T, T>* table) {
  *table = {reweigh<T>, differentiate<T>, add_dq<T>};
}

void backward_f32(BackwardKernels<float, float>* table) {
  fill_backward(table);
}
#if HWY_HAVE_FLOAT64
void backward_f64(BackwardKernels<double, double>* table) {
  fill_backward(table);
}
#endif

}  // namespace cephalo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cephalo::kernels {
void add_backward_kernels(Isa isa, BackwardKernels<float, float>* table) {
  CEPHALO_FOR_ISA(isa, backward_f32)(table);
}
void add_backward_kernels(Isa isa, BackwardKernels<double, double>* table) {
  CEPHALO_FOR_ISA_F64(isa, backward_f64)(table);
}
}  // namespace cephalo::kernels
#endif
