// What the kernels share, compiled once for each instruction set. Include after
// <hwy/foreach_target.h>.

#if defined(CEPHALO_KERNELS_CPU_SIMD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef CEPHALO_KERNELS_CPU_SIMD_INL_H
#undef CEPHALO_KERNELS_CPU_SIMD_INL_H
#else
#define CEPHALO_KERNELS_CPU_SIMD_INL_H
#endif

#include <hwy/highway.h>

#include "cephalo/kernels/kernels.h"

// Inner loops of constant length must become straight code: their arrays are registers.
#if defined(__clang__)
#define CEPHALO_UNROLL _Pragma("clang loop unroll(full)")
#else
#define CEPHALO_UNROLL _Pragma("GCC unroll 32")
#endif

HWY_BEFORE_NAMESPACE();
namespace cephalo::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Register tile: rows × 3 accumulators, 3 loads and a broadcast fill the registers.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
constexpr int kRows = 8;
#else
constexpr int kRows = 4;
#endif

template <typename T>
using Tag = hn::ScalableTag<T>;
template <typename T>
using Vec = hn::Vec<Tag<T>>;
// GCC 12 spills arrays of Highway's wrappers but not arrays of what they wrap.
template <typename T>
using Raw = decltype(Vec<T>::raw);
template <typename T>
constexpr int kLanes = static_cast<int>(HWY_LANES(T));

// accumulators[r][c] += Σ over steps of a[step][r] · b[step][c]
// a: [steps][kRows]   b: [steps][b_stride], n vectors of each
template <int n, typename T>
HWY_INLINE void multiply(const T* HWY_RESTRICT a, const T* HWY_RESTRICT b, dim_t b_stride,
                         dim_t steps, Raw<T> (&accumulators)[kRows][n]) {
  const Tag<T> d;
#if !defined(__clang__)
#pragma GCC unroll 4
#endif
  for (dim_t step = 0; step < steps; ++step) {
    Raw<T> x[n];
    CEPHALO_UNROLL
    for (int c = 0; c < n; ++c) x[c] = hn::LoadU(d, b + step * b_stride + c * kLanes<T>).raw;
    CEPHALO_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const Vec<T> w = hn::Set(d, a[step * kRows + r]);
      CEPHALO_UNROLL
      for (int c = 0; c < n; ++c) {
        accumulators[r][c] = hn::MulAdd(w, Vec<T>{x[c]}, Vec<T>{accumulators[r][c]}).raw;
      }
    }
  }
}

template <int n, typename T>
HWY_INLINE void set_zero(Raw<T> (&accumulators)[kRows][n]) {
  CEPHALO_UNROLL
  for (int r = 0; r < kRows; ++r) {
    CEPHALO_UNROLL
    for (int c = 0; c < n; ++c) accumulators[r][c] = hn::Zero(Tag<T>()).raw;
  }
}

// Lanes of vector c whose bits are set in a word of a mask.
template <typename T>
HWY_INLINE hn::Mask<Tag<T>> mask_of(std::uint64_t word, int c) {
  const std::uint64_t bits = word >> (c * kLanes<T>);
  return hn::LoadMaskBits(Tag<T>(), reinterpret_cast<const std::uint8_t*>(&bits));
}

// 2^f for f in [−½, ½]: minimax with the value 1 at 0, relative error 9.2e-8 before rounding.
HWY_INLINE Vec<float> exp2_fraction(Vec<float> f) {
  const Tag<float> d;
  Vec<float> p = hn::Set(d, 0.0013264727252480886F);
  p = hn::MulAdd(p, f, hn::Set(d, 0.009671512785774179F));
  p = hn::MulAdd(p, f, hn::Set(d, 0.055507337444715414F));
  p = hn::MulAdd(p, f, hn::Set(d, 0.24022242083111844F));
  p = hn::MulAdd(p, f, hn::Set(d, 0.6931469775976777F));
  return hn::MulAdd(p, f, hn::Set(d, 1.0F));
}

#if HWY_HAVE_FLOAT64
// The same for float64: Taylor's series to degree 12, relative error 2e-16.
HWY_INLINE Vec<double> exp2_fraction(Vec<double> f) {
  constexpr double kCoefficients[] = {2.5678435993488196e-11,
                                      4.4455382718708101e-10,
                                      7.0549116208011209e-09,
                                      1.0178086009239699e-07,
                                      1.3215486790144305e-06,
                                      1.5252733804059838e-05,
                                      1.5403530393381606e-04,
                                      1.3333558146428441e-03,
                                      9.6181291076284769e-03,
                                      5.5504108664821576e-02,
                                      2.4022650695910069e-01,
                                      6.9314718055994529e-01,
                                      1.0};
  const Tag<double> d;
  Vec<double> p = hn::Set(d, kCoefficients[0]);
  CEPHALO_UNROLL
  for (int k = 1; k < 13; ++k) p = hn::MulAdd(p, f, hn::Set(d, kCoefficients[k]));
  return p;
}
#endif

// 2^x. Below 2^-100 (float64: 2^-900) the result is exactly 0, above the largest number infinity;
// NaN stays. Relative error 1.7e-7 (float64: 5e-16).
template <typename T>
HWY_INLINE Vec<T> exp2(Vec<T> x) {
  const Tag<T> d;
  constexpr bool kFloat = sizeof(T) == 4;
  const auto normal = hn::Not(hn::Lt(x, hn::Set(d, T(kFloat ? -100 : -900))));
#if HWY_TARGET == HWY_AVX3
  // Raised before it is scaled, so that nothing underflows on the way: processors that stop for
  // microcode there may do so for lanes that the mask leaves out, too. Max keeps a NaN in its
  // second operand.
  if constexpr (kFloat) {
    const __m512 high = _mm512_max_ps(_mm512_set1_ps(-101.0F), x.raw);
    const __m512 whole = _mm512_roundscale_ps(high, _MM_FROUND_TO_NEAREST_INT);
    const Vec<T> p = exp2_fraction(Vec<T>{_mm512_sub_ps(high, whole)});
    return Vec<T>{_mm512_maskz_scalef_ps(normal.raw, p.raw, whole)};
  } else {
    const __m512d high = _mm512_max_pd(_mm512_set1_pd(-901.0), x.raw);
    const __m512d whole = _mm512_roundscale_pd(high, _MM_FROUND_TO_NEAREST_INT);
    const Vec<T> p = exp2_fraction(Vec<T>{_mm512_sub_pd(high, whole)});
    return Vec<T>{_mm512_maskz_scalef_pd(normal.raw, p.raw, whole)};
  }
#else
  // Adding 1.5 · 2^mantissa leaves the nearest integer in the low bits; with the exponent's bias
  // added those bits, moved up, are the power of two.
  constexpr int kMantissa = kFloat ? 23 : 52;
  constexpr int kBias = kFloat ? 127 : 1023;
  const hn::RebindToSigned<Tag<T>> di;
  const Vec<T> magic = hn::Set(d, T(kFloat ? 12582912.0 : 6755399441055744.0) + T(kBias));
  // A selection keeps NaN on every target; Min drops it on some.
  const Vec<T> limit = hn::Set(d, T(kBias + 1));
  const Vec<T> low = hn::IfThenElse(hn::Gt(x, limit), limit, x);
  const Vec<T> shifted = hn::Add(low, magic);
  const Vec<T> p = exp2_fraction(hn::Sub(low, hn::Sub(shifted, magic)));
  const Vec<T> power = hn::BitCast(d, hn::ShiftLeft<kMantissa>(hn::BitCast(di, shifted)));
  return hn::IfThenElseZero(normal, hn::Mul(p, power));
#endif
}

// tanh(x): a polynomial near 0, where 1 − 2 / (e^2x + 1) would cancel. Relative error 3e-7.
HWY_INLINE Vec<float> tanh(Vec<float> x) {
  const Tag<float> d;
  const Vec<float> square = hn::Mul(x, x);
  Vec<float> p = hn::Set(d, -0.005704985080850162F);
  p = hn::MulAdd(p, square, hn::Set(d, 0.020639085608041407F));
  p = hn::MulAdd(p, square, hn::Set(d, -0.05373971460924268F));
  p = hn::MulAdd(p, square, hn::Set(d, 0.1333144219280361F));
  p = hn::MulAdd(p, square, hn::Set(d, -0.3333328194182894F));
  const Vec<float> near = hn::MulAdd(hn::Mul(p, square), x, x);
  const Vec<float> one = hn::Set(d, 1.0F);
  const Vec<float> size = hn::Abs(x);
  const Vec<float> power = exp2<float>(hn::Mul(size, hn::Set(d, 2.8853900817779268F)));
  const Vec<float> far = hn::Sub(one, hn::Div(hn::Set(d, 2.0F), hn::Add(power, one)));
  return hn::IfThenElse(hn::Lt(size, hn::Set(d, 0.625F)), near, hn::CopySign(far, x));
}
#if HWY_HAVE_FLOAT64
HWY_INLINE Vec<double> tanh(Vec<double> x) {
  const Tag<double> d;
  HWY_ALIGN double lanes[kLanes<double>];
  hn::Store(x, d, lanes);
  for (double& lane : lanes) lane = __builtin_tanh(lane);
  return hn::Load(d, lanes);
}
#endif

// score + bias · log2(e). The factor comes in two parts, so that a large bias is rounded once only.
template <typename T>
HWY_INLINE Vec<T> add_bias_in_base_2(Vec<T> score, Vec<T> bias) {
  const Tag<T> d;
  constexpr T kHigh = static_cast<T>(1.4426950408889634074);
  constexpr T kLow = static_cast<T>(sizeof(T) == 4 ? 1.4426950408889634074 - double{kHigh}
                                                   : 2.0355273740931033e-17);
  return hn::MulAdd(bias, hn::Set(d, kHigh), hn::MulAdd(bias, hn::Set(d, kLow), score));
}

// score − slope · distance, the slope in two parts too.
template <typename T>
HWY_INLINE Vec<T> subtract_alibi(Vec<T> score, const TileMask<T>& mask, Vec<T> distance) {
  const Tag<T> d;
  score = hn::NegMulAdd(hn::Set(d, mask.slope_low), distance, score);
  return hn::NegMulAdd(hn::Set(d, mask.slope), distance, score);
}

// A far row (kFarScore). `score`, in base 2, has all but the bias in it: what comes out is the
// score in natural units, rounded once the bias is added.
template <typename T>
HWY_INLINE Vec<T> rounded_score(Vec<T> score, Vec<T> bias) {
  return hn::MulAdd(score, hn::Set(Tag<T>(), static_cast<T>(0.69314718055994530942)), bias);
}
// The difference of two natural numbers in base 2. Scores that matter are near their reference:
// then the subtraction is exact.
template <typename T>
HWY_INLINE Vec<T> sum_in_base_2(Vec<T> score, Vec<T> minus_reference) {
  constexpr T kLog2E = static_cast<T>(1.4426950408889634074);
  return hn::Mul(hn::Add(score, minus_reference), hn::Set(Tag<T>(), kLog2E));
}

// The columns of a strip that hold a visible pair; visible: [kRows], null: all.
template <typename T>
HWY_INLINE StripColumns columns_of(const std::uint64_t* visible, int columns) {
  if (visible == nullptr) return {0, static_cast<std::uint8_t>(columns)};
  std::uint64_t any = 0;
  for (int r = 0; r < kRows; ++r) any |= visible[r];
  if (any == 0) return {0, 0};
  const int first = __builtin_ctzll(any) / kLanes<T>;
  const int last = (63 - __builtin_clzll(any)) / kLanes<T>;
  return {static_cast<std::uint8_t>(first), static_cast<std::uint8_t>(last - first + 1)};
}

// What is between a strip's scores and its weights.
enum class Between { nothing, bits, terms };

template <typename T>
HWY_INLINE Between between_of(const TileMask<T>* mask, bool hides) {
  if (mask != nullptr && (mask->bias != nullptr || mask->slope != T(0) || mask->softcap != T(0))) {
    return Between::terms;
  }
  return hides ? Between::bits : Between::nothing;
}

// One element of storage.
HWY_INLINE float widen(std::uint16_t bits, DType dtype) {
  return dtype == DType::bf16 ? to_float(BFloat16{bits}) : to_float(Float16{bits});
}

// Sixteen-bit numbers in lanes as float. Float16: the exponent is moved by a multiplication, which
// also turns its denormal numbers into normal ones; Inf and NaN get the exponent of ours.
template <class D>
HWY_INLINE hn::Vec<D> widen_bf16(D d, const std::uint16_t* from) {
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<std::uint16_t, D> d16;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(d16, from))));
}
template <class D>
HWY_INLINE hn::Vec<D> widen_f16(D d, const std::uint16_t* from) {
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<std::uint16_t, D> d16;
  const auto half = hn::PromoteTo(du, hn::LoadU(d16, from));
  const auto sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(du, 0x8000U)));
  const auto size = hn::ShiftLeft<13>(hn::And(half, hn::Set(du, 0x7FFFU)));
  const auto moved = hn::BitCast(du, hn::Mul(hn::BitCast(d, size), hn::Set(d, 0x1p112F)));
  const auto special = hn::Or(size, hn::Set(du, 0x7F800000U));
  const auto large = hn::Gt(hn::BitCast(hn::RebindToSigned<D>(), size),
                            hn::Set(hn::RebindToSigned<D>(), 0x0F7FFFFF));
  const auto chosen = hn::IfThenElse(hn::RebindMask(du, large), special, moved);
  return hn::BitCast(d, hn::Or(sign, chosen));
}

// to[0 .. n) = elements of any floating type, `stride` apart, as T.
template <typename T>
HWY_INLINE void widen_row(const void* from, DType dtype, dim_t stride, dim_t n,
                          T* HWY_RESTRICT to) {
  switch (dtype) {
    case DType::f32:
      for (dim_t k = 0; k < n; ++k)
        to[k] = static_cast<T>(static_cast<const float*>(from)[k * stride]);
      return;
    case DType::f64:
      for (dim_t k = 0; k < n; ++k)
        to[k] = static_cast<T>(static_cast<const double*>(from)[k * stride]);
      return;
    default:
      break;
  }
  const auto* bits = static_cast<const std::uint16_t*>(from);
  dim_t k = 0;
  if constexpr (sizeof(T) == 4 && kLanes < T >> 1) {
    const Tag<T> d;
    for (; stride == 1 && k + kLanes<T> <= n; k += kLanes<T>) {
      hn::StoreU(dtype == DType::bf16 ? widen_bf16(d, bits + k) : widen_f16(d, bits + k), d,
                 to + k);
    }
  }
  for (; k < n; ++k) to[k] = static_cast<T>(widen(bits[k * stride], dtype));
}

}  // namespace cephalo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
