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
struct BFloat16Storage {
  using Stored = std::uint16_t;
#if HWY_TARGET == HWY_SCALAR
  static HWY_INLINE Vec<float> vector(const std::uint16_t* from) {
    return hn::Set(Tag<float>(), element(from));
  }
#else
  static HWY_INLINE Vec<float> vector(const std::uint16_t* from) {
    return widen_bf16(Tag<float>(), from);
  }
#endif
  static HWY_INLINE float element(const std::uint16_t* from) { return widen(*from, DType::bf16); }
};
struct Float16Storage {
  using Stored = std::uint16_t;
#if HWY_TARGET == HWY_SCALAR
  static HWY_INLINE Vec<float> vector(const std::uint16_t* from) {
    return hn::Set(Tag<float>(), element(from));
  }
#else
  static HWY_INLINE Vec<float> vector(const std::uint16_t* from) {
    return widen_f16(Tag<float>(), from);
  }
#endif
  static HWY_INLINE float element(const std::uint16_t* from) { return widen(*from, DType::f16); }
};

// scores[j] = q · k_j for four keys from j on.
template <class Storage, typename T>
HWY_INLINE void score_4(const Rows& keys, dim_t j, const T* HWY_RESTRICT q, T* scores) {
  const Tag<T> d;
  using Stored = typename Storage::Stored;
  const Stored* k[4];
  for (int x = 0; x < 4; ++x) k[x] = static_cast<const Stored*>(keys.address[j + x]);
  Raw<T> sums[4];
  CEPHALO_UNROLL
  for (int x = 0; x < 4; ++x) sums[x] = hn::Zero(d).raw;
  dim_t at = 0;
  for (; at + kLanes<T> <= keys.dim; at += kLanes<T>) {
    const Vec<T> part = hn::LoadU(d, q + at);
    CEPHALO_UNROLL
    for (int x = 0; x < 4; ++x) {
      sums[x] = hn::MulAdd(part, Storage::vector(k[x] + at), Vec<T>{sums[x]}).raw;
    }
  }
  CEPHALO_UNROLL
  for (int x = 0; x < 4; ++x) {
    T sum = hn::GetLane(hn::SumOfLanes(d, Vec<T>{sums[x]}));
    for (dim_t rest = at; rest < keys.dim; ++rest) sum += q[rest] * Storage::element(k[x] + rest);
    scores[x] = sum;
  }
}

// context += Σ weights[j] · v_j for columns [begin, begin + n vectors); a hidden value is not
// touched, since 0 times NaN would be NaN.
template <class Storage, int n, typename T>
HWY_INLINE void gather_columns(const Rows& values, const T* weights, const TileMask<T>* mask,
                               dim_t begin, T* context) {
  const Tag<T> d;
  using Stored = typename Storage::Stored;
  const bool select = mask != nullptr && mask->visible != nullptr;
  Raw<T> sums[n];
  CEPHALO_UNROLL
  for (int v = 0; v < n; ++v) sums[v] = hn::Zero(d).raw;
  for (dim_t j = 0; j < values.count; ++j) {
    if (select && (mask->visible[j] & 1) == 0) continue;
    const Vec<T> weight = hn::Set(d, weights[j]);
    const Stored* row = static_cast<const Stored*>(values.address[j]) + begin;
    CEPHALO_UNROLL
    for (int v = 0; v < n; ++v) {
      sums[v] = hn::MulAdd(weight, Storage::vector(row + v * kLanes<T>), Vec<T>{sums[v]}).raw;
    }
  }
  CEPHALO_UNROLL
  for (int v = 0; v < n; ++v) {
    T* to = context + begin + v * kLanes<T>;
    hn::StoreU(hn::Add(hn::LoadU(d, to), Vec<T>{sums[v]}), d, to);
  }
}

template <class Storage, typename T>
HWY_INLINE void gather_all(const Rows& values, const T* weights, const TileMask<T>* mask,
                           T* context) {
  using Stored = typename Storage::Stored;
  constexpr dim_t kN = kLanes<T>;
  dim_t at = 0;
  for (; at + 4 * kN <= values.dim; at += 4 * kN) {
    gather_columns<Storage, 4>(values, weights, mask, at, context);
  }
  for (; at + kN <= values.dim; at += kN) {
    gather_columns<Storage, 1>(values, weights, mask, at, context);
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

// The score of key j after softcap, bias and alibi; −inf where it is hidden.
template <typename T>
HWY_INLINE T masked_score(const TileMask<T>& mask, dim_t width, dim_t j, T score) {
  if (mask.visible != nullptr && (mask.visible[j] & 1) == 0) return -static_cast<T>(__builtin_inf());
  if (mask.softcap != T(0)) {
    score = mask.softcap * static_cast<T>(__builtin_tanh(double(score / mask.softcap)));
  }
  if (mask.bias != nullptr) score += mask.bias[j * width] * T(1.4426950408889634074);
  if (mask.slope != T(0)) {
    const T distance = mask.distance - T(j);
    score -= mask.slope * (distance < T(0) ? -distance : distance);
  }
  return score;
}

// Weights of a block from its scores, padded to whole vectors with −inf; their sum is returned.
template <typename T>
HWY_INLINE T weigh_scores(T* scores, dim_t padded, T reference) {
  const Tag<T> d;
  Vec<T> sum = hn::Zero(d);
  for (dim_t j = 0; j < padded; j += kLanes<T>) {
    const Vec<T> weight =
        exp2<T>(hn::Sub(hn::LoadU(d, scores + j), hn::Set(d, reference)));
    hn::StoreU(weight, d, scores + j);
    sum = hn::Add(sum, weight);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

template <class Storage, typename T>
HWY_INLINE void decode_as(const Rows& keys, const Rows& values, const TileMask<T>* mask,
                          dim_t mask_width, DecodeQuery<T>* query) {
  const T infinity = static_cast<T>(__builtin_inf());
  HWY_ALIGN T scores[kKvTile + 16];
  const dim_t count = keys.count;
  dim_t j = 0;
  for (; j + 4 <= count; j += 4) score_4<Storage>(keys, j, query->q, scores + j);
  if (j < count) {  // the last four again, where there are four
    const void* last[4];
    for (dim_t x = 0; x < 4; ++x) last[x] = keys.address[j + x < count ? j + x : count - 1];
    score_4<Storage>({last, 4, keys.dim, keys.stride, keys.dtype}, 0, query->q, scores + j);
  }
  T largest = query->reference;
  bool broken = false;
  for (dim_t k = 0; k < count; ++k) {
    if (mask != nullptr) scores[k] = masked_score(*mask, mask_width, k, scores[k]);
    broken = broken || !(scores[k] < infinity);
    largest = scores[k] > largest ? scores[k] : largest;
  }
  if (largest == -infinity && !broken) return;  // nothing was visible
  if (broken) {
    query->sum = static_cast<T>(__builtin_nan(""));
    query->reference = T(0);
    return;
  }
  const dim_t padded = (count + kLanes<T> - 1) / kLanes<T> * kLanes<T>;
  for (dim_t k = count; k < padded; ++k) scores[k] = -infinity;
  if (largest > query->reference) {
    HWY_ALIGN T factor[kLanes<T>];
    hn::Store(exp2<T>(hn::Set(Tag<T>(), query->reference - largest)), Tag<T>(), factor);
    query->sum *= factor[0];
    for (dim_t k = 0; k < values.dim; ++k) query->context[k] *= factor[0];
    query->reference = largest;
  }
  query->sum += weigh_scores(scores, padded, largest);
  if (mask != nullptr && mask->kept != nullptr) {
    for (dim_t k = 0; k < count; ++k) {
      scores[k] *= (mask->kept[k] & 1) != 0 ? mask->grown : T(0);
    }
  }
  gather_all<Storage>(values, scores, mask, query->context);
}

HWY_NOINLINE void decode_f32(const Rows& keys, const Rows& values, const TileMask<float>* mask,
                             dim_t mask_width, DecodeQuery<float>* query) {
  switch (keys.dtype) {
    case DType::bf16:
      return decode_as<BFloat16Storage>(keys, values, mask, mask_width, query);
    case DType::f16:
      return decode_as<Float16Storage>(keys, values, mask, mask_width, query);
    default:
      return decode_as<SameStorage<float>>(keys, values, mask, mask_width, query);
  }
}
void fill_decode_f32(DecodeKernels<float>* table) { table->decode = decode_f32; }

#if HWY_HAVE_FLOAT64
HWY_NOINLINE void decode_f64(const Rows& keys, const Rows& values, const TileMask<double>* mask,
                             dim_t mask_width, DecodeQuery<double>* query) {
  decode_as<SameStorage<double>>(keys, values, mask, mask_width, query);
}
void fill_decode_f64(DecodeKernels<double>* table) { table->decode = decode_f64; }
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
