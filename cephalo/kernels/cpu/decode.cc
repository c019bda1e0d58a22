// One query against keys and values in place: as fast as memory can deliver them.
#include "cephalo/kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cephalo/kernels/cpu/decode.cc"
#include <hwy/foreach_target.h>

#include "cephalo/kernels/cpu/dispatch.h"
#include "cephalo/kernels/cpu/simd-inl.h"
#include "cephalo/kernels/tables.h"

HWY_BEFORE_NAMESPACE();
namespace cephalo::kernels::HWY_NAMESPACE {

// How elements of one storage type are read as T: a vector at a time where they are dense.
template <typename T>
struct SameStorage {
  using Stored = T;
  static HWY_INLINE Vec<T> vector(const T* from) { return hn::LoadU(Tag<T>(), from); }
  static HWY_INLINE T element(const T* from) { return *from; }
};
template <DType kType>
struct Storage16 {
  using Stored = std::uint16_t;
  static HWY_INLINE float element(const Stored* from) { return widen(*from, kType); }
  static HWY_INLINE Vec<float> vector(const Stored* from) {
    const Tag<float> d;
#if HWY_TARGET == HWY_SCALAR
    return hn::Set(d, element(from));
#else
    if constexpr (kType == DType::bf16) {
      return widen_bf16(d, from);
    } else {
      return widen_f16(d, from);
    }
#endif
  }
};

// The sums of four vectors of float, next to each other: 128 bits at a time, then across.
#if HWY_TARGET != HWY_SCALAR
template <class D>
HWY_INLINE hn::Vec<hn::FixedTag<float, 4>> add_blocks(D d, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) > 4) {
    const hn::Half<D> half;
    return add_blocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  } else {
    static_cast<void>(d);
    return v;
  }
}
#endif
HWY_INLINE void sum_4(const Raw<float> (&sums)[4], float* to) {
  const Tag<float> d;
#if HWY_TARGET == HWY_SCALAR
  for (int x = 0; x < 4; ++x) hn::StoreU(Vec<float>{sums[x]}, d, to + x);
#else
  const Vec<float> a{sums[0]};
  const Vec<float> b{sums[1]};
  const Vec<float> c{sums[2]};
  const Vec<float> e{sums[3]};
  const Vec<float> ab = hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  const Vec<float> ce = hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e));
  const hn::Repartition<std::uint64_t, Tag<float>> wide;
  const auto low = hn::InterleaveLower(wide, hn::BitCast(wide, ab), hn::BitCast(wide, ce));
  const auto high = hn::InterleaveUpper(wide, hn::BitCast(wide, ab), hn::BitCast(wide, ce));
  const Vec<float> all = hn::Add(hn::BitCast(d, low), hn::BitCast(d, high));
  hn::StoreU(add_blocks(d, all), hn::FixedTag<float, 4>(), to);
#endif
}
#if HWY_HAVE_FLOAT64
HWY_INLINE void sum_4(const Raw<double> (&sums)[4], double* to) {
  const Tag<double> d;
  for (int x = 0; x < 4; ++x) to[x] = hn::GetLane(hn::SumOfLanes(d, Vec<double>{sums[x]}));
}
#endif

// Rows are asked for this many ahead, into the L2 cache: measured, memory then delivers 0.98 of
// what a plain read gets from it, against 0.65 without or into L1.
constexpr dim_t kAhead = 64;

// Asks for a row that will be read soon.
HWY_INLINE void prefetch_row(const void* row, dim_t bytes) {
  const char* at = static_cast<const char*>(row);
  for (dim_t line = 0; line < bytes; line += 64) __builtin_prefetch(at + line, 0, 2);
}

// scores[j] = q · k_j for four keys from j on.
template <class Storage, typename T>
HWY_INLINE void score_4(const Rows& keys, dim_t j, const T* HWY_RESTRICT q, T* scores) {
  const Tag<T> d;
  using Stored = typename Storage::Stored;
  const Stored* k[4];
  for (int x = 0; x < 4; ++x) k[x] = static_cast<const Stored*>(keys.address[j + x]);
  Raw<T> sums[4];
  // Row after row: memory is read in its order.
  dim_t at = 0;
  CEPHALO_UNROLL
  for (int x = 0; x < 4; ++x) {
    Vec<T> sum = hn::Zero(d);
    for (at = 0; at + kLanes<T> <= keys.dim; at += kLanes<T>) {
      sum = hn::MulAdd(hn::LoadU(d, q + at), Storage::vector(k[x] + at), sum);
    }
    sums[x] = sum.raw;
  }
  sum_4(sums, scores);
  for (; at < keys.dim; ++at) {
    for (int x = 0; x < 4; ++x) scores[x] += q[at] * Storage::element(k[x] + at);
  }
}

// Asks for columns of the value row kAhead from j on, or of the key row that follows.
template <typename Stored>
HWY_INLINE void prefetch_ahead(const Rows& values, const Rows& coming, dim_t j, dim_t begin,
                               dim_t bytes) {
  const dim_t soon = j + kAhead;
  if (soon < values.count) {
    prefetch_row(static_cast<const Stored*>(values.address[soon]) + begin, bytes);
  } else if (soon - values.count < coming.count) {
    prefetch_row(static_cast<const Stored*>(coming.address[soon - values.count]) + begin, bytes);
  }
}

// context += Σ weights[j] · v_j for columns [begin, begin + n vectors). Even and odd rows have sums
// of their own: a multiply-add that waits for memory holds up half as many. A hidden value is not
// touched, since 0 times NaN would be NaN.
template <class Storage, int n, typename T>
HWY_INLINE void gather_columns(const Rows& values, const Rows& coming, const T* weights,
                               const TileMask<T>* mask, dim_t begin, T* context) {
  const Tag<T> d;
  using Stored = typename Storage::Stored;
  const bool select = mask != nullptr && mask->visible != nullptr;
  constexpr dim_t kBytes = n * kLanes<T> * static_cast<dim_t>(sizeof(Stored));
  Raw<T> sums[2][n];
  CEPHALO_UNROLL
  for (int v = 0; v < n; ++v) sums[0][v] = sums[1][v] = hn::Zero(d).raw;
  for (dim_t j = 0; j < values.count; j += 2) {
    CEPHALO_UNROLL
    for (dim_t x = 0; x < 2; ++x) {
      if (j + x >= values.count) break;
      prefetch_ahead<Stored>(values, coming, j + x, begin, kBytes);
      if (select && (mask->visible[j + x] & 1) == 0) continue;
      const Vec<T> weight = hn::Set(d, weights[j + x]);
      const Stored* row = static_cast<const Stored*>(values.address[j + x]) + begin;
      CEPHALO_UNROLL
      for (int v = 0; v < n; ++v) {
        sums[x][v] =
            hn::MulAdd(weight, Storage::vector(row + v * kLanes<T>), Vec<T>{sums[x][v]}).raw;
      }
    }
  }
  CEPHALO_UNROLL
  for (int v = 0; v < n; ++v) {
    T* to = context + begin + v * kLanes<T>;
    const Vec<T> sum = hn::Add(Vec<T>{sums[0][v]}, Vec<T>{sums[1][v]});
    hn::StoreU(hn::Add(hn::LoadU(d, to), sum), d, to);
  }
}

template <class Storage, typename T>
HWY_INLINE void gather_all(const Rows& values, const Rows& coming, const T* weights,
                           const TileMask<T>* mask, T* context) {
  using Stored = typename Storage::Stored;
  constexpr dim_t kN = kLanes<T>;
  dim_t at = 0;
  for (; at + 4 * kN <= values.dim; at += 4 * kN) {
    gather_columns<Storage, 4>(values, coming, weights, mask, at, context);
  }
  for (; at + kN <= values.dim; at += kN) {
    gather_columns<Storage, 1>(values, coming, weights, mask, at, context);
  }
  for (; at < values.dim; ++at) {
    T sum = T(0);
    for (dim_t j = 0; j < values.count; ++j) {
      if (mask != nullptr && mask->visible != nullptr && (mask->visible[j] & 1) == 0) continue;
      sum += weights[j] * Storage::element(static_cast<const Stored*>(values.address[j]) + at);
    }
    context[at] += sum;
  }
}

constexpr double kLog2E = 1.4426950408889634074;
constexpr double kLn2 = 0.69314718055994530942;

// The scores of a block of one query after softcap, bias and alibi; −inf where they are hidden.
template <typename T>
struct MaskedScores {
  double base_2[kKvTile];  // in double: a bias and the reference must cancel before rounding
  bool beyond = false;     // one of them is beyond kFarScore
  T natural[kKvTile];      // rounded after the bias was added: for rows that are far
  T largest = static_cast<T>(-__builtin_inf());  // of `natural`
  bool far = false;                              // it is beyond kFarScore, alibi left aside

  HWY_INLINE void fill(const TileMask<T>& mask, dim_t width, const T* scores, dim_t count) {
    for (dim_t j = 0; j < count; ++j) {
      base_2[j] = -__builtin_inf();
      if (mask.visible != nullptr && (mask.visible[j] & 1) == 0) continue;
      double score = capped(mask, scores[j]);
      if (mask.bias != nullptr) score += double{mask.bias[j * width]} * kLog2E;
      if (mask.slope != T(0)) score -= alibi(mask, j);
      base_2[j] = score;
      beyond = beyond || !(__builtin_fabs(score) <= kFarScore * kLog2E);
    }
  }

  HWY_INLINE void round(const TileMask<T>& mask, dim_t width, const T* scores, dim_t count) {
    for (dim_t j = 0; j < count; ++j) {
      natural[j] = static_cast<T>(-__builtin_inf());
      if (mask.visible != nullptr && (mask.visible[j] & 1) == 0) continue;
      const double bias = double{mask.bias[j * width]};
      const double score = capped(mask, scores[j]);
      natural[j] = static_cast<T>((score - alibi(mask, j)) * kLn2 + bias);
      if (natural[j] > largest) {
        largest = natural[j];
        far = __builtin_fabs(score * kLn2 + bias) > kFarScore;
      }
    }
  }

 private:
  static HWY_INLINE double capped(const TileMask<T>& mask, T from) {
    const double score = double{from};
    if (mask.softcap == T(0)) return score;
    return double{mask.softcap} * __builtin_tanh(score / double{mask.softcap});
  }
  static HWY_INLINE double alibi(const TileMask<T>& mask, dim_t j) {
    const double distance = double{mask.distance} - static_cast<double>(j);
    return (double{mask.slope} + double{mask.slope_low}) * __builtin_fabs(distance);
  }
};

// A reference of either kind in base 2.
template <typename T>
HWY_INLINE double in_base_2(T reference, bool far) {
  return far ? double{reference} * kLog2E : double{reference};
}

template <typename T>
HWY_INLINE bool is_above(T reference, bool far, const DecodeQuery<T>& query) {
  const T infinity = static_cast<T>(__builtin_inf());
  if (far == query.far || query.reference == -infinity) return reference > query.reference;
  return in_base_2(reference, far) > in_base_2(query.reference, query.far);
}

// The query takes a larger reference: what it has so far shrinks.
template <typename T>
HWY_INLINE void raise_reference(T reference, bool far, dim_t v_dim, DecodeQuery<T>* query) {
  if (query->reference > static_cast<T>(-__builtin_inf())) {
    double fall = double{query->reference - reference};  // of the same kind, the usual case
    if (far && query->far) fall *= kLog2E;
    if (far != query->far) {
      fall = in_base_2(query->reference, query->far) - in_base_2(reference, far);
    }
    const T factor = hn::GetLane(exp2<T>(hn::Set(Tag<T>(), static_cast<T>(fall))));
    query->sum *= factor;
    for (dim_t k = 0; k < v_dim; ++k) query->context[k] *= factor;
  }
  query->reference = reference;
  query->far = far;
}

// Weights of a block from its scores, padded to whole vectors with −inf; their sum is returned.
template <typename T>
HWY_INLINE T weigh_scores(T* scores, dim_t padded, T reference) {
  const Tag<T> d;
  Vec<T> sum = hn::Zero(d);
  for (dim_t j = 0; j < padded; j += kLanes<T>) {
    const Vec<T> weight = exp2<T>(hn::Sub(hn::LoadU(d, scores + j), hn::Set(d, reference)));
    hn::StoreU(weight, d, scores + j);
    sum = hn::Add(sum, weight);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// The largest of padded scores; false when one is NaN or +inf.
template <typename T>
HWY_INLINE bool largest_of(const T* scores, dim_t padded, T* largest) {
  const Tag<T> d;
  const Vec<T> infinity = hn::Set(d, static_cast<T>(__builtin_inf()));
  Vec<T> top = hn::Set(d, *largest);
  auto fine = hn::Eq(top, top);
  for (dim_t j = 0; j < padded; j += kLanes<T>) {
    const Vec<T> score = hn::LoadU(d, scores + j);
    fine = hn::And(fine, hn::Lt(score, infinity));
    top = hn::Max(top, score);
  }
  *largest = hn::GetLane(hn::MaxOfLanes(d, top));
  return hn::AllTrue(d, fine);
}

// A visible score is NaN or +inf: the row is NaN from here on.
template <typename T>
HWY_INLINE void break_row(DecodeQuery<T>* query) {
  query->sum = static_cast<T>(__builtin_nan(""));
  query->reference = T(0);
  query->far = false;
}

// Scores of a block become weights, and their sum the query's. False: there is nothing to gather.
template <typename T>
HWY_INLINE bool weigh_plain(T* scores, dim_t padded, dim_t v_dim, DecodeQuery<T>* query) {
  T largest = query->reference;
  if (!largest_of(scores, padded, &largest)) {
    break_row(query);
    return false;
  }
  if (largest == static_cast<T>(-__builtin_inf())) return false;
  if (largest > query->reference) raise_reference(largest, false, v_dim, query);
  query->sum += weigh_scores(scores, padded, largest);
  return true;
}

// The same where a mask hides or adds; scores [count, padded) are −inf.
template <typename T>
HWY_NOINLINE bool weigh_masked(const TileMask<T>& mask, dim_t mask_width, dim_t count, dim_t padded,
                               dim_t v_dim, T* scores, DecodeQuery<T>* query) {
  const T infinity = static_cast<T>(__builtin_inf());
  MaskedScores<T> masked;
  masked.fill(mask, mask_width, scores, count);
  const bool rounds = mask.bias != nullptr && (masked.beyond || query->far);
  if (HWY_UNLIKELY(rounds)) masked.round(mask, mask_width, scores, count);
  for (dim_t k = 0; k < count; ++k) {
    scores[k] = rounds ? masked.natural[k] : static_cast<T>(masked.base_2[k]);
  }
  T largest = -infinity;
  if (!largest_of(scores, padded, &largest)) {
    break_row(query);
    return false;
  }
  const bool far = rounds && masked.far;
  if (rounds && !far) {  // base 2 holds it
    largest = -infinity;
    for (dim_t k = 0; k < count; ++k) {
      const T score = static_cast<T>(masked.base_2[k]);
      largest = score > largest ? score : largest;
    }
  }
  if (is_above(largest, far, *query)) raise_reference(largest, far, v_dim, query);
  if (query->reference == -infinity) return false;  // nothing was visible
  const double reference = double{query->reference};
  for (dim_t k = 0; k < count; ++k) {
    const double distance = query->far ? (double{masked.natural[k]} - reference) * kLog2E
                                       : masked.base_2[k] - reference;
    scores[k] = static_cast<T>(distance < 0.0 ? distance : 0.0);
  }
  query->sum += weigh_scores(scores, padded, T(0));
  for (dim_t k = 0; k < count && mask.kept != nullptr; ++k) {
    scores[k] *= (mask.kept[k] & 1) != 0 ? mask.grown : T(0);
  }
  return true;
}

// While keys are read, values are asked for, and while values are read, the next block's keys.
template <class Storage, typename T>
HWY_INLINE void decode_as(const DecodeBlock& block, const TileMask<T>* mask, dim_t mask_width,
                          DecodeQuery<T>* query) {
  const T infinity = static_cast<T>(__builtin_inf());
  const Rows& keys = block.keys;
  const Rows& values = block.values;
  const dim_t key_bytes = keys.dim * static_cast<dim_t>(sizeof(typename Storage::Stored));
  const dim_t value_bytes = values.dim * static_cast<dim_t>(sizeof(typename Storage::Stored));
  HWY_ALIGN T scores[kKvTile + 16];
  const dim_t count = keys.count;
  dim_t j = 0;
  for (; j + 4 <= count; j += 4) {
    for (dim_t soon = j + kAhead; soon < j + kAhead + 4; ++soon) {
      if (soon < count) {
        prefetch_row(keys.address[soon], key_bytes);
      } else if (soon - count < values.count) {
        prefetch_row(values.address[soon - count], value_bytes);
      }
    }
    score_4<Storage>(keys, j, query->q, scores + j);
  }
  if (j < count) {
    const void* last[4];
    for (dim_t x = 0; x < 4; ++x) last[x] = keys.address[j + x < count ? j + x : count - 1];
    score_4<Storage>({last, 4, keys.dim, keys.stride, keys.dtype}, 0, query->q, scores + j);
  }
  const dim_t padded = (count + kLanes<T> - 1) / kLanes<T> * kLanes<T>;
  for (dim_t k = count; k < padded; ++k) scores[k] = -infinity;
  const bool sees = mask == nullptr
                        ? weigh_plain(scores, padded, values.dim, query)
                        : weigh_masked(*mask, mask_width, count, padded, values.dim, scores, query);
  if (!sees) return;
  gather_all<Storage>(values, block.coming, scores, mask, query->context);
}

HWY_NOINLINE void decode_f32(const DecodeBlock& block, const TileMask<float>* mask,
                             dim_t mask_width, DecodeQuery<float>* query) {
  switch (block.keys.dtype) {
    case DType::bf16:
      return decode_as<Storage16<DType::bf16>>(block, mask, mask_width, query);
    case DType::f16:
      return decode_as<Storage16<DType::f16>>(block, mask, mask_width, query);
    default:
      return decode_as<SameStorage<float>>(block, mask, mask_width, query);
  }
}
void fill_decode_f32(DecodeKernels<float>* table) {
  table->decode = decode_f32;
}

#if HWY_HAVE_FLOAT64
HWY_NOINLINE void decode_f64(const DecodeBlock& block, const TileMask<double>* mask,
                             dim_t mask_width, DecodeQuery<double>* query) {
  decode_as<SameStorage<double>>(block, mask, mask_width, query);
}
void fill_decode_f64(DecodeKernels<double>* table) {
  table->decode = decode_f64;
}
#endif

}  // namespace cephalo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cephalo::kernels {
void add_decode_kernels(Isa isa, DecodeKernels<float>* table) {
  CEPHALO_FOR_ISA(isa, fill_decode_f32)(table);
}
void add_decode_kernels(Isa isa, DecodeKernels<double>* table) {
  CEPHALO_FOR_ISA_F64(isa, fill_decode_f64)(table);
}
}  // namespace cephalo::kernels
#endif
