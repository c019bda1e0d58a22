// How weights and gradients of scores move along a direction, for one block of queries against one
// tile of keys.
#include "cephalo/kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cephalo/kernels/cpu/attend_second.cc"
#include <hwy/foreach_target.h>

#include "cephalo/kernels/cpu/dispatch.h"
#include "cephalo/kernels/cpu/query_strip-inl.h"
#include "cephalo/kernels/cpu/simd-inl.h"
#include "cephalo/kernels/tables.h"

HWY_BEFORE_NAMESPACE();
namespace cephalo::kernels::HWY_NAMESPACE {

// One product of a strip: rows [depth][kRows], lanes [depth][width].
template <typename T>
struct Factors {
  const T* rows;
  const T* lanes;
  dim_t depth;
};

// to: [kRows][width] = the sum of `count` products, n columns from c0 on.
template <int n, typename T>
HWY_INLINE void store_products(const Factors<T>* factors, int count, dim_t width, int c0, T* to) {
  const Tag<T> d;
  constexpr int kN = kLanes<T>;
  Raw<T> sums[kRows][n];
  set_zero<n, T>(sums);
  for (int f = 0; f < count; ++f) {
    multiply<n, T>(factors[f].rows, factors[f].lanes + c0 * kN, width, factors[f].depth, sums);
  }
  CEPHALO_UNROLL
  for (int r = 0; r < kRows; ++r) {
    CEPHALO_UNROLL
    for (int c = 0; c < n; ++c) hn::StoreU(Vec<T>{sums[r][c]}, d, to + r * width + (c0 + c) * kN);
  }
}

template <typename T>
HWY_INLINE void store_products(const Factors<T>* factors, int count, dim_t width,
                               StripColumns columns, T* to) {
  switch (columns.count) {
    case 3:
      return store_products<3>(factors, count, width, columns.first, to);
    case 2:
      return store_products<2>(factors, count, width, columns.first, to);
    default:
      return store_products<1>(factors, count, width, columns.first, to);
  }
}

// Calls body(at, r, c) for every vector of a strip: `at` is where it lies among the pairs.
template <typename T, typename Body>
HWY_INLINE void for_vectors(const QueryStrip<T>& strip, StripColumns columns, const Body& body) {
  for (int r = 0; r < kRows; ++r) {
    for (int c = columns.first; c < columns.first + columns.count; ++c) {
      body((strip.query + r) * strip.width + c * kLanes<T>, r, c);
    }
  }
}

template <typename T>
HWY_INLINE Vec<T> kept_share(const QueryStrip<T>& strip, int r, int c, Vec<T> x) {
  if (strip.mask == nullptr || strip.mask->kept == nullptr) return x;
  const auto kept = mask_of<T>(strip.mask->kept[strip.query + r], c);
  return hn::IfThenElseZero(kept, hn::Mul(x, hn::Set(Tag<T>(), strip.mask->grown)));
}

// tweights of a strip, from products that were stored in their place: base 2.
template <typename T>
HWY_NOINLINE void move_stored(const QueryStrip<T>& strip, StripColumns columns,
                              const TileDirection<T, T>& along, const PairTile<T, T>& pairs) {
  const Tag<T> d;
  const Vec<T> natural = hn::Set(d, static_cast<T>(0.69314718055994530942));
  const T softcap = strip.mask == nullptr ? T(0) : strip.mask->softcap;
  // −2 / c, c being natural
  const Vec<T> bend = hn::Set(d, softcap == T(0) ? T(0) : T(-2 * 1.4426950408889634074) / softcap);
  for_vectors(strip, columns, [&](dim_t at, int r, int c) HWY_ATTR {
    Vec<T> tscore = hn::Mul(hn::LoadU(d, pairs.tweights + at), natural);
    if (softcap != T(0)) {
      const Vec<T> tanh = hn::LoadU(d, pairs.tanhs + at);
      tscore = hn::Mul(tscore, softcap_slope<T>(tanh));
      hn::StoreU(hn::Mul(hn::Mul(bend, tanh), tscore), d, pairs.tslopes + at);
    }
    if (along.tbias != nullptr) tscore = hn::Add(tscore, hn::LoadU(d, along.tbias + at));
    tscore = hn::Add(tscore, hn::Set(d, along.minus_tlse[strip.query + r]));
    const Vec<T> tweight = hn::Mul(hn::LoadU(d, pairs.weights + at), tscore);
    hn::StoreU(only_visible(strip, r, c, tweight), d, pairs.tweights + at);
  });
}

template <typename T>
HWY_NOINLINE void move_weights(const QueryBlock<T, T>& block, const KeyTile<T>& tile,
                               const TileMask<T>* mask, const TileDirection<T, T>& along,
                               const PairTile<T, T>& pairs) {
  for (dim_t query = 0; query < block.count; query += kRows) {
    const StripColumns columns = pairs.strips[query / kRows];
    if (columns.count == 0) continue;
    const QueryStrip<T> strip = strip_at(query, block, tile, mask);
    const dim_t row = query * block.head_dim;
    const Factors<T> factors[] = {{along.uq + row, tile.keys, block.head_dim},
                                  {block.q + row, along.ukeys, block.head_dim}};
    store_products(factors, 2, strip.width, columns, pairs.tweights + query * strip.width);
    move_stored(strip, columns, along, pairs);
  }
}

// dscores and tdscores of a strip, from dcontext · v and dcontext · uv that were stored in their
// places.
template <typename T>
HWY_NOINLINE void differentiate_stored(const QueryStrip<T>& strip, StripColumns columns,
                                       const T* minus_delta, const TileDirection<T, T>& along,
                                       const PairTile<T, T>& pairs) {
  const Tag<T> d;
  const bool capped = strip.mask != nullptr && strip.mask->softcap != T(0);
  for_vectors(strip, columns, [&](dim_t at, int r, int c) HWY_ATTR {
    const Vec<T> weight = hn::LoadU(d, pairs.weights + at);
    const Vec<T> dweight = kept_share(strip, r, c, hn::LoadU(d, pairs.dscores + at));
    const Vec<T> tdweight = kept_share(strip, r, c, hn::LoadU(d, pairs.tdscores + at));
    const Vec<T> centred = hn::Add(dweight, hn::Set(d, minus_delta[strip.query + r]));
    const Vec<T> tcentred = hn::Add(tdweight, hn::Set(d, along.minus_tdelta[strip.query + r]));
    Vec<T> dscore = hn::Mul(weight, centred);
    Vec<T> tdscore =
        hn::MulAdd(weight, tcentred, hn::Mul(hn::LoadU(d, pairs.tweights + at), centred));
    if (capped) {
      const Vec<T> slope = softcap_slope<T>(hn::LoadU(d, pairs.tanhs + at));
      tdscore = hn::MulAdd(slope, tdscore, hn::Mul(dscore, hn::LoadU(d, pairs.tslopes + at)));
      dscore = hn::Mul(slope, dscore);
    }
    hn::StoreU(only_visible(strip, r, c, dscore), d, pairs.dscores + at);
    hn::StoreU(only_visible(strip, r, c, tdscore), d, pairs.tdscores + at);
  });
}

template <typename T>
HWY_NOINLINE void differentiate_moving(const QueryBlock<T, T>& block, const KeyTile<T>& tile,
                                       const TileMask<T>* mask, const TileDirection<T, T>& along,
                                       const PairTile<T, T>& pairs) {
  for (dim_t query = 0; query < block.count; query += kRows) {
    const StripColumns columns = pairs.strips[query / kRows];
    if (columns.count == 0) continue;
    const QueryStrip<T> strip = strip_at(query, block, tile, mask);
    const T* dcontext = block.dcontext + query * block.v_dim;
    const Factors<T> by_values{dcontext, tile.values, block.v_dim};
    const Factors<T> by_direction{dcontext, along.uvalues, block.v_dim};
    store_products(&by_values, 1, strip.width, columns, pairs.dscores + query * strip.width);
    store_products(&by_direction, 1, strip.width, columns, pairs.tdscores + query * strip.width);
    differentiate_stored(strip, columns, block.minus_delta, along, pairs);
  }
}

// Lanes past the tile's keys hold numbers that mean nothing.
template <typename T>
HWY_NOINLINE void add_rows(const QueryBlock<T, T>& block, const KeyTile<T>& tile,
                           const StripColumns* strips, const T* numbers, double* sums) {
  const Tag<T> d;
  constexpr dim_t kN = kLanes<T>;
  const dim_t width = tile.columns * kN;
  for (dim_t query = 0; query < block.count; ++query) {
    const StripColumns columns = strips[query / kRows];
    Vec<T> sum = hn::Zero(d);
    for (int c = columns.first; c < columns.first + columns.count; ++c) {
      const Vec<T> x = hn::LoadU(d, numbers + query * width + c * kN);
      const dim_t there = tile.count - c * kN;
      sum = hn::Add(
          sum,
          there >= kN ? x : hn::IfThenElseZero(hn::FirstN(d, static_cast<std::size_t>(there)), x));
    }
    sums[query] += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sum)));
  }
}

template <typename T>
HWY_NOINLINE void drop_pairs(const QueryBlock<T, T>& block, const KeyTile<T>& tile,
                             const TileMask<T>* mask, const StripColumns* strips, T* numbers) {
  if (mask == nullptr || mask->kept == nullptr) return;
  const Tag<T> d;
  for (dim_t query = 0; query < block.count; query += kRows) {
    const QueryStrip<T> strip = strip_at(query, block, tile, mask);
    for_vectors(strip, strips[query / kRows], [&](dim_t at, int r, int c) HWY_ATTR {
      hn::StoreU(kept_share(strip, r, c, hn::LoadU(d, numbers + at)), d, numbers + at);
    });
  }
}

template <typename T>
void fill_second(SecondKernels<T, T>* table) {
  *table = {move_weights<T>, differentiate_moving<T>, add_rows<T>, drop_pairs<T>};
}

void second_f32(SecondKernels<float, float>* table) {
  fill_second(table);
}
#if HWY_HAVE_FLOAT64
void second_f64(SecondKernels<double, double>* table) {
  fill_second(table);
}
#endif

}  // namespace cephalo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cephalo::kernels {
void add_second_kernels(Isa isa, SecondKernels<float, float>* table) {
  CEPHALO_FOR_ISA(isa, second_f32)(table);
}
void add_second_kernels(Isa isa, SecondKernels<double, double>* table) {
  CEPHALO_FOR_ISA_F64(isa, second_f64)(table);
}
}  // namespace cephalo::kernels
#endif
