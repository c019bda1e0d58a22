// Scores, weights and context of one tile of queries against one packed block of keys.
#include "cephalo/kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cephalo/kernels/cpu/attend.cc"
#include <hwy/foreach_target.h>

#include "cephalo/kernels/cpu/dispatch.h"
#include "cephalo/kernels/cpu/scores-inl.h"
#include "cephalo/kernels/cpu/simd-inl.h"
#include "cephalo/kernels/tables.h"

HWY_BEFORE_NAMESPACE();
namespace cephalo::kernels::HWY_NAMESPACE {

// A strip's weights may add up to this before the reference moves. Larger saves nothing, since
// references hardly ever move, and costs digits: exponents of dominant weights are rounded at the
// distance to the reference.
constexpr double kLargestSum = 256.0;

// Weights of one vector of a strip in which a bias, alibi or a softcap applies, from scores that
// were stored: with all this in the loop the accumulators would not stay in registers.
template <bool any_far, typename T>
HWY_INLINE Vec<T> weights_with_terms(const Strip<T>& strip, const References<T>& references, int r,
                                     int c) {
  const Tag<T> d;
  const Vec<T> score = hn::LoadU(d, strip.weights + r * strip.width + c * kLanes<T>);
  Vec<T> weight = exp2<T>(whole_score<any_far>(strip, score, references, r, c));
  if (strip.visible != nullptr) {
    weight = hn::IfThenElseZero(mask_of<T>(strip.visible[r], c), weight);
  }
  return weight;
}

template <bool any_far, typename T>
HWY_NOINLINE bool weigh_stored(const Strip<T>& strip, const QueryTile<T, T>& tile, int c0, int n,
                               T* block_sum) {
  const Tag<T> d;
  Raw<T> sums[kMaxColumns];
  bool fits = true;
  for (int c = 0; c < n; ++c) {
    const References<T> references = references_of(tile, c0 + c);
    Vec<T> sum = hn::Zero(d);
    for (int r = 0; r < kRows; ++r) {
      const Vec<T> weight = weights_with_terms<any_far>(strip, references, r, c0 + c);
      hn::StoreU(weight, d, strip.weights + r * strip.width + (c0 + c) * kLanes<T>);
      sum = hn::Add(sum, weight);
    }
    fits = fits && hn::AllTrue(d, hn::Le(sum, hn::Set(d, T(kLargestSum))));
    sums[c] = sum.raw;
  }
  if (!fits && !tile.fixed) return false;
  for (int c = 0; c < n; ++c) {
    T* total = block_sum + (c0 + c) * kLanes<T>;
    hn::StoreU(hn::Add(hn::LoadU(d, total), Vec<T>{sums[c]}), d, total);
  }
  return true;
}

// Weights of n columns from c0 on, with the references as they are. False, and sums left alone,
// when a strip's sum is too large or no number.
template <int n, Between between, typename T>
HWY_INLINE bool weigh_strip(const Strip<T>& strip, const QueryTile<T, T>& tile, int c0,
                            T* block_sum) {
  const Tag<T> d;
  constexpr int kN = kLanes<T>;
  const T* minus_reference = tile.minus_reference + c0 * kN;
  Raw<T> scores[kRows][n];
  CEPHALO_UNROLL
  for (int c = 0; c < n; ++c) {
    // Without anything to add q · k begins at the reference.
    const Vec<T> begin =
        between == Between::terms ? hn::Zero(d) : hn::LoadU(d, minus_reference + c * kN);
    CEPHALO_UNROLL
    for (int r = 0; r < kRows; ++r) scores[r][c] = begin.raw;
  }
  multiply<n, T>(strip.keys, tile.q + c0 * kN, strip.width, strip.head_dim, scores);
  if constexpr (between == Between::terms) {
    CEPHALO_UNROLL
    for (int r = 0; r < kRows; ++r) {
      CEPHALO_UNROLL
      for (int c = 0; c < n; ++c) {
        hn::StoreU(Vec<T>{scores[r][c]}, d, strip.weights + r * strip.width + (c0 + c) * kN);
      }
    }
    return HWY_LIKELY(tile.far == 0) ? weigh_stored<false>(strip, tile, c0, n, block_sum)
                                     : weigh_stored<true>(strip, tile, c0, n, block_sum);
  }
  Raw<T> sums[n];
  auto fits = hn::Eq(hn::Zero(d), hn::Zero(d));
  CEPHALO_UNROLL
  for (int c = 0; c < n; ++c) {
    Vec<T> sum = hn::Zero(d);
    CEPHALO_UNROLL
    for (int r = 0; r < kRows; ++r) {
      Vec<T> weight = exp2<T>(Vec<T>{scores[r][c]});
      if constexpr (between == Between::bits) {
        weight = hn::IfThenElseZero(mask_of<T>(strip.visible[r], c0 + c), weight);
      }
      sum = hn::Add(sum, weight);
      hn::StoreU(weight, d, strip.weights + r * strip.width + (c0 + c) * kN);
    }
    fits = hn::And(fits, hn::Le(sum, hn::Set(d, T(kLargestSum))));
    sums[c] = sum.raw;
  }
  if (HWY_UNLIKELY(!hn::AllTrue(d, fits)) && !tile.fixed) return false;
  CEPHALO_UNROLL
  for (int c = 0; c < n; ++c) {
    T* total = block_sum + (c0 + c) * kN;
    hn::StoreU(hn::Add(hn::LoadU(d, total), Vec<T>{sums[c]}), d, total);
  }
  return true;
}

template <typename T>
HWY_INLINE void scale_column(T* numbers, dim_t count, dim_t width, Vec<T> factor) {
  const Tag<T> d;
  for (dim_t k = 0; k < count; ++k, numbers += width) {
    hn::StoreU(hn::Mul(hn::LoadU(d, numbers), factor), d, numbers);
  }
}

// Column c of a strip in which some lane has no reference yet, or a score far above it, or a score
// that is no number. Only such lanes change, each by its own visible scores alone: what one query
// sees never reaches another. `begun`: the weights with the references as they are, are there.
template <typename T>
HWY_NOINLINE void move_references(const Strip<T>& strip, const KeyBlock<T>& block,
                                  QueryTile<T, T>& tile, int c, bool begun, T* block_sum) {
  const Tag<T> d;
  const Vec<T> infinity = hn::Set(d, static_cast<T>(__builtin_inf()));
  const dim_t offset = c * kLanes<T>;
  Raw<T> scores[kRows][1];
  set_zero<1, T>(scores);
  multiply<1, T>(strip.keys, tile.q + offset, strip.width, strip.head_dim, scores);

  const References<T> before = references_of(tile, c);
  const auto seen = mask_of<T>(tile.seen, c);
  Vec<T> sum = hn::Zero(d);
  LargestScores<T> largest;
  std::uint64_t visible = strip.visible == nullptr ? ~std::uint64_t{0} : 0;
  for (int r = 0; r < kRows; ++r) {
    largest.take(strip, Vec<T>{scores[r][0]}, r, c);
    if (strip.visible != nullptr) visible |= strip.visible[r];
    T* weight = strip.weights + r * strip.width + offset;
    if (!begun) {
      Vec<T> now = exp2<T>(whole_score<true>(strip, Vec<T>{scores[r][0]}, before, r, c));
      if (strip.visible != nullptr) {
        now = hn::IfThenElseZero(mask_of<T>(strip.visible[r], c), now);
      }
      hn::StoreU(now, d, weight);
    }
    sum = hn::Add(sum, hn::LoadU(d, weight));
  }

  // A lane that has no reference yet moves whatever its weights are.
  const auto moves = hn::Or(hn::Not(seen), hn::Not(hn::Le(sum, hn::Set(d, T(kLargestSum)))));
  const auto broken = hn::And(moves, hn::Or(largest.nan, hn::Eq(largest.natural, infinity)));
  const auto sees = hn::AndNot(broken, hn::And(moves, hn::Gt(largest.natural, hn::Neg(infinity))));
  const bool has_bias = strip.mask != nullptr && strip.mask->bias != nullptr;
  const auto becomes_far =
      has_bias ? hn::And(sees, hn::Gt(hn::Abs(largest.biased), hn::Set(d, T(kFarScore))))
               : hn::Gt(infinity, infinity);
  References<T> after = before;
  after.far = hn::Or(becomes_far, hn::AndNot(moves, before.far));
  const Vec<T> minus_largest = hn::Neg(hn::IfThenElse(
      becomes_far, largest.natural, hn::Add(largest.base_2, growth_ahead(strip, tile, c))));
  // A reference never goes down: a large bias is known to its last place only, and what falls by
  // one such step would overflow what was summed before.
  const auto other_unit = hn::Xor(after.far, before.far);
  const Vec<T> lower = hn::IfThenElse(hn::Or(other_unit, hn::Not(seen)), minus_largest,
                                      hn::Min(before.minus, minus_largest));
  after.minus = hn::IfThenElse(sees, lower, before.minus);
  // A broken row is NaN from here on; with a finite reference it does not come here again.
  after.minus = hn::IfThenElse(broken, hn::Zero(d), after.minus);
  // A lane that has met keys, all with scores of −inf, gets the lowest reference, which its first
  // finite score leaves. Were it new again in the next strip, its neighbours would be weighed by
  // column there and round differently: they would tell what a key holds that they do not see. With
  // a bias it stays new, because base 2 has no room for scores near the lowest reference.
  const auto waits = has_bias
                         ? hn::Gt(infinity, infinity)
                         : hn::AndNot(hn::Or(seen, hn::Or(sees, broken)), mask_of<T>(visible, c));
  after.minus =
      hn::IfThenElse(waits, hn::Set(d, T(sizeof(T) == 4 ? __FLT_MAX__ : __DBL_MAX__)), after.minus);
  hn::StoreU(after.minus, d, tile.minus_reference + offset);
  tile.far = (tile.far & ~bits_of<T>(moves, c)) | bits_of<T>(becomes_far, c);
  tile.seen |= bits_of<T>(hn::Or(waits, hn::Or(sees, broken)), c);

  Vec<T> factor =
      hn::IfThenElse(hn::And(sees, seen), factor_of_move(before, after), hn::Set(d, T(1)));
  factor = hn::IfThenElse(broken, hn::Set(d, static_cast<T>(__builtin_nan(""))), factor);
  scale_column(tile.sum + offset, 1, strip.width, factor);
  scale_column(block_sum + offset, 1, strip.width, factor);
  // Lanes that had no reference have nothing to scale yet.
  if (!hn::AllFalse(d, hn::And(seen, moves))) {
    scale_column(tile.context + offset, block.v_dim, strip.width, factor);
    scale_column(strip.weights - strip.key * strip.width + offset, strip.key, strip.width, factor);
  }
  sum = hn::Zero(d);
  for (int r = 0; r < kRows; ++r) {
    T* to = strip.weights + r * strip.width + offset;
    // At most 0, but for the last place of a large bias.
    const Vec<T> score = whole_score<true>(strip, Vec<T>{scores[r][0]}, after, r, c);
    Vec<T> renewed = hn::IfThenElseZero(sees, exp2<T>(hn::Min(score, hn::Zero(d))));
    if (strip.visible != nullptr) {
      renewed = hn::IfThenElseZero(mask_of<T>(strip.visible[r], c), renewed);
    }
    const Vec<T> weight = hn::IfThenElse(moves, renewed, hn::LoadU(d, to));
    hn::StoreU(weight, d, to);
    sum = hn::Add(sum, weight);
  }
  hn::StoreU(hn::Add(hn::LoadU(d, block_sum + offset), sum), d, block_sum + offset);
}

template <Between between, typename T>
HWY_INLINE bool weigh_n_columns(const Strip<T>& strip, const QueryTile<T, T>& tile,
                                StripColumns columns, T* block_sum) {
  switch (columns.count) {
    case 3:
      return weigh_strip<3, between>(strip, tile, columns.first, block_sum);
    case 2:
      return weigh_strip<2, between>(strip, tile, columns.first, block_sum);
    default:
      return weigh_strip<1, between>(strip, tile, columns.first, block_sum);
  }
}

template <typename T>
HWY_INLINE bool weigh_columns(const Strip<T>& strip, const QueryTile<T, T>& tile,
                              StripColumns columns, T* block_sum) {
  switch (between_of(strip.mask, strip.visible != nullptr)) {
    case Between::terms:
      return weigh_n_columns<Between::terms>(strip, tile, columns, block_sum);
    case Between::bits:
      return weigh_n_columns<Between::bits>(strip, tile, columns, block_sum);
    default:
      return weigh_n_columns<Between::nothing>(strip, tile, columns, block_sum);
  }
}

// Lanes that see their first keys in this strip.
template <typename T>
HWY_INLINE std::uint64_t new_lanes(const Strip<T>& strip, const QueryTile<T, T>& tile,
                                   StripColumns columns) {
  if (tile.fixed) return 0;
  const int lanes = columns.count * kLanes<T>;
  std::uint64_t visible = ((std::uint64_t{1} << lanes) - 1) << (columns.first * kLanes<T>);
  if (strip.visible != nullptr) {
    visible = 0;
    for (int r = 0; r < kRows; ++r) visible |= strip.visible[r];
  }
  return visible & ~tile.seen;
}

// A strip in which some lanes are new: their columns go straight to choosing references.
template <typename T>
HWY_NOINLINE void weigh_by_column(const Strip<T>& strip, const KeyBlock<T>& block,
                                  QueryTile<T, T>& tile, StripColumns columns, std::uint64_t news,
                                  T* block_sum) {
  constexpr std::uint64_t kColumn = (std::uint64_t{1} << kLanes<T>)-1;
  for (int c = columns.first; c < columns.first + columns.count; ++c) {
    const bool has_new = (news & (kColumn << (c * kLanes<T>))) != 0;
    if (has_new) {
      move_references(strip, block, tile, c, false, block_sum);
    } else if (!weigh_columns(strip, tile, {static_cast<std::uint8_t>(c), 1}, block_sum)) {
      move_references(strip, block, tile, c, true, block_sum);
    }
  }
}

// Dropout: kept weights grow, the others become 0. After the sums, which are of all weights.
template <typename T>
HWY_INLINE void drop(const Strip<T>& strip, StripColumns columns) {
  const Tag<T> d;
  const Vec<T> grown = hn::Set(d, strip.mask->grown);
  for (int r = 0; r < kRows; ++r) {
    for (int c = columns.first; c < columns.first + columns.count; ++c) {
      T* weight = strip.weights + r * strip.width + c * kLanes<T>;
      const auto kept = mask_of<T>(strip.mask->kept[strip.key + r], c);
      hn::StoreU(hn::IfThenElseZero(kept, hn::Mul(hn::LoadU(d, weight), grown)), d, weight);
    }
  }
}

template <typename T>
HWY_NOINLINE void weigh(const KeyBlock<T>& block, QueryTile<T, T>& tile, const TileMask<T>* mask,
                        T* weights, StripColumns* strips) {
  const Tag<T> d;
  const dim_t width = tile.columns * kLanes<T>;
  HWY_ALIGN T block_sum[kMaxColumns * kLanes<T>] = {};
  // The last strip may be cut short: the keys that it lacks are hidden.
  std::uint64_t tail[kRows] = {};
  for (dim_t r = 0; r < block.count % kRows; ++r) tail[r] = (std::uint64_t{1} << width) - 1;
  constexpr TileMask<T> kNoMask{};

  for (dim_t key = 0; key < block.count; key += kRows) {
    Strip<T> strip{block.keys + key * block.head_dim,
                   key,
                   block.head_dim,
                   width,
                   weights + key * width,
                   mask,
                   nullptr};
    if (mask != nullptr && mask->visible != nullptr) {
      strip.visible = mask->visible + key;
    } else if (key + kRows > block.count) {
      strip.visible = tail;
      if (mask == nullptr) strip.mask = &kNoMask;
    }
    const StripColumns columns = columns_of<T>(strip.visible, tile.columns);
    strips[key / kRows] = columns;
    if (columns.count == 0) continue;
    const std::uint64_t news = new_lanes<T>(strip, tile, columns);
    if (HWY_UNLIKELY(news != 0)) {
      weigh_by_column(strip, block, tile, columns, news, block_sum);
    } else if (HWY_UNLIKELY(!weigh_columns(strip, tile, columns, block_sum))) {
      for (int c = columns.first; c < columns.first + columns.count; ++c) {
        move_references(strip, block, tile, c, true, block_sum);
      }
    }
  }
  if (mask != nullptr && mask->kept != nullptr) {
    for (dim_t key = 0; key < block.count; key += kRows) {
      const Strip<T> strip{nullptr, key, 0, width, weights + key * width, mask, nullptr};
      drop(strip, strips[key / kRows]);
    }
  }
  for (int c = 0; c < tile.columns; ++c) {
    T* sum = tile.sum + c * kLanes<T>;
    hn::StoreU(hn::Add(hn::LoadU(d, sum), hn::LoadU(d, block_sum + c * kLanes<T>)), d, sum);
  }
}

// context += weights · values for keys [begin, end) and n columns from c0 on. Each such run is
// summed on its own first: long rows lose less.
template <int n, typename T>
HWY_INLINE void gather_run(const KeyBlock<T>& block, const QueryTile<T, T>& tile, int c0,
                           const T* weights, dim_t begin, dim_t end) {
  const Tag<T> d;
  constexpr int kN = kLanes<T>;
  const dim_t width = tile.columns * kN;
  for (dim_t row = 0; row < block.v_dim; row += kRows) {
    Raw<T> sums[kRows][n];
    set_zero<n, T>(sums);
    const T* values = block.values + row / kRows * block.value_stride;
    multiply<n, T>(values + begin * kRows, weights + begin * width + c0 * kN, width, end - begin,
                   sums);
    T* context = tile.context + row * width + c0 * kN;
    CEPHALO_UNROLL
    for (int r = 0; r < kRows; ++r) {
      CEPHALO_UNROLL
      for (int c = 0; c < n; ++c) {
        T* to = context + r * width + c * kN;
        hn::StoreU(hn::Add(hn::LoadU(d, to), Vec<T>{sums[r][c]}), d, to);
      }
    }
  }
}

// The same where a hidden value may be NaN or infinite, and 0 times it would be NaN.
template <typename T>
HWY_NOINLINE void gather_visible(const KeyBlock<T>& block, const QueryTile<T, T>& tile,
                                 StripColumns columns, const TileMask<T>& mask, const T* weights,
                                 dim_t begin, dim_t end) {
  const Tag<T> d;
  const dim_t width = tile.columns * kLanes<T>;
  for (dim_t row = 0; row < block.v_dim; ++row) {
    const T* values = block.values + row / kRows * block.value_stride + row % kRows;
    for (int c = columns.first; c < columns.first + columns.count; ++c) {
      Vec<T> sum = hn::Zero(d);
      for (dim_t key = begin; key < end; ++key) {
        const Vec<T> weight = hn::LoadU(d, weights + key * width + c * kLanes<T>);
        const Vec<T> more = hn::MulAdd(hn::Set(d, values[key * kRows]), weight, sum);
        sum = hn::IfThenElse(mask_of<T>(mask.visible[key], c), more, sum);
      }
      T* to = tile.context + row * width + c * kLanes<T>;
      hn::StoreU(hn::Add(hn::LoadU(d, to), sum), d, to);
    }
  }
}

template <typename T>
HWY_NOINLINE void gather(const KeyBlock<T>& block, const QueryTile<T, T>& tile,
                         const TileMask<T>* mask, const T* weights, const StripColumns* strips) {
  const bool select = !block.finite_values && mask != nullptr && mask->visible != nullptr;
  const dim_t count = (block.count + kRows - 1) / kRows;
  for (dim_t strip = 0; strip < count;) {
    const StripColumns columns = strips[strip];
    dim_t next = strip + 1;
    while (next < count && strips[next].first == columns.first &&
           strips[next].count == columns.count) {
      ++next;
    }
    const dim_t begin = strip * kRows;
    const dim_t end = next * kRows < block.count ? next * kRows : block.count;
    strip = next;
    if (columns.count == 0) continue;
    if (HWY_UNLIKELY(select)) {
      gather_visible(block, tile, columns, *mask, weights, begin, end);
    } else if (columns.count == 3) {
      gather_run<3>(block, tile, columns.first, weights, begin, end);
    } else if (columns.count == 2) {
      gather_run<2>(block, tile, columns.first, weights, begin, end);
    } else {
      gather_run<1>(block, tile, columns.first, weights, begin, end);
    }
  }
}

template <typename T>
void fill_attend(AttendKernels<T, T>* table) {
  table->rows = kRows;
  table->lanes = kLanes<T>;
  table->weigh = weigh<T>;
  table->gather = gather<T>;
}

void attend_f32(AttendKernels<float, float>* table) {
  fill_attend(table);
}
#if HWY_HAVE_FLOAT64
void attend_f64(AttendKernels<double, double>* table) {
  fill_attend(table);
}
#endif

}  // namespace cephalo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cephalo::kernels {
void add_attend_kernels(Isa isa, AttendKernels<float, float>* table) {
  CEPHALO_FOR_ISA(isa, attend_f32)(table);
}
void add_attend_kernels(Isa isa, AttendKernels<double, double>* table) {
  CEPHALO_FOR_ISA_F64(isa, attend_f64)(table);
}
}  // namespace cephalo::kernels
#endif
