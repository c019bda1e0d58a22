// What a model does between its products: layer norm, GELU, dropout, row by row.
#include "cephalo/kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cephalo/kernels/cpu/model.cc"
#include <hwy/foreach_target.h>

#include "cephalo/kernels/cpu/dispatch.h"
#include "cephalo/kernels/cpu/rows-inl.h"
#include "cephalo/kernels/cpu/simd-inl.h"
#include "cephalo/kernels/tables.h"

HWY_BEFORE_NAMESPACE();
namespace cephalo::kernels::HWY_NAMESPACE {

// x += added; -> mean. The row stays in the first cache for the two walks that follow.
template <typename T>
HWY_INLINE T add_and_mean(T* x, const T* added, dim_t width) {
  const Tag<T> d;
  Vec<T> sum = hn::Zero(d);
  for (dim_t k = 0; k < width; k += kLanes<T>) {
    Vec<T> value = load_some(x + k, width - k);
    if (added != nullptr) {
      value = hn::Add(value, load_some(added + k, width - k));
      store_some(value, width - k, x + k);
    }
    sum = hn::Add(sum, value);
  }
  return static_cast<T>(sum_of_lanes<T>(sum) / static_cast<double>(width));
}

template <typename T>
HWY_INLINE T mean_square_distance(const T* x, T mean, dim_t width) {
  const Tag<T> d;
  const Vec<T> center = hn::Set(d, mean);
  Vec<T> sum = hn::Zero(d);
  for (dim_t k = 0; k < width; k += kLanes<T>) {
    const Vec<T> distance = hn::Sub(load_some(x + k, width - k, mean), center);
    sum = hn::MulAdd(distance, distance, sum);
  }
  return static_cast<T>(sum_of_lanes<T>(sum) / static_cast<double>(width));
}

template <typename T>
HWY_NOINLINE void layer_norm(const NormRows<T>& rows) {
  const Tag<T> d;
  for (dim_t r = 0; r < rows.count; ++r) {
    T* x = rows.x + r * rows.width;
    T* y = rows.y + r * rows.width;
    const T* added = rows.added != nullptr ? rows.added + r * rows.width : nullptr;
    const T mean = add_and_mean(x, added, rows.width);
    const T variance = mean_square_distance(x, mean, rows.width);
    const T rstd = T(1) / static_cast<T>(__builtin_sqrt(double(variance + rows.epsilon)));
    const Vec<T> center = hn::Set(d, mean);
    const Vec<T> factor = hn::Set(d, rstd);
    for (dim_t k = 0; k < rows.width; k += kLanes<T>) {
      const dim_t left = rows.width - k;
      const Vec<T> normal = hn::Mul(hn::Sub(load_some(x + k, left), center), factor);
      store_some(
          hn::MulAdd(normal, load_some(rows.weight + k, left), load_some(rows.bias + k, left)),
          left, y + k);
    }
    if (rows.moments != nullptr) {
      rows.moments[2 * r] = mean;
      rows.moments[2 * r + 1] = rstd;
    }
  }
}

// n = (x − mean) · rstd, g = dy · weight: dx += rstd (g − mean(g) − n · mean(g · n))
template <typename T>
HWY_NOINLINE void layer_norm_backward(const NormRowsBackward<T>& rows) {
  const Tag<T> d;
  for (dim_t r = 0; r < rows.count; ++r) {
    const T* x = rows.x + r * rows.width;
    const T* dy = rows.dy + r * rows.width;
    T* dx = rows.dx + r * rows.width;
    const Vec<T> center = hn::Set(d, rows.moments[2 * r]);
    const Vec<T> factor = hn::Set(d, rows.moments[2 * r + 1]);
    Vec<T> sum = hn::Zero(d);
    Vec<T> product = hn::Zero(d);
    for (dim_t k = 0; k < rows.width; k += kLanes<T>) {
      const dim_t left = rows.width - k;
      const Vec<T> normal = hn::Mul(hn::Sub(load_some(x + k, left), center), factor);
      const Vec<T> slope = load_some(dy + k, left);
      const Vec<T> weighted = hn::Mul(slope, load_some(rows.weight + k, left));
      sum = hn::Add(sum, weighted);
      product = hn::MulAdd(weighted, normal, product);  // 0 past the end: `weighted` is
      store_some(hn::MulAdd(slope, normal, load_some(rows.dweight + k, left)), left,
                 rows.dweight + k);
      store_some(hn::Add(slope, load_some(rows.dbias + k, left)), left, rows.dbias + k);
    }
    const auto width = static_cast<double>(rows.width);
    const Vec<T> mean = hn::Set(d, static_cast<T>(sum_of_lanes<T>(sum) / width));
    const Vec<T> turn = hn::Set(d, static_cast<T>(sum_of_lanes<T>(product) / width));
    for (dim_t k = 0; k < rows.width; k += kLanes<T>) {
      const dim_t left = rows.width - k;
      const Vec<T> normal = hn::Mul(hn::Sub(load_some(x + k, left), center), factor);
      const Vec<T> weighted = hn::Mul(load_some(dy + k, left), load_some(rows.weight + k, left));
      const Vec<T> inner = hn::NegMulAdd(normal, turn, hn::Sub(weighted, mean));
      store_some(hn::MulAdd(factor, inner, load_some(dx + k, left)), left, dx + k);
    }
  }
}

// ½ (1 + tanh u) is 1 / (1 + e^−2u): the share of x that passes.
//   u = √(2/π) (x + 0.044715 x³)
template <typename T>
HWY_INLINE Vec<T> gelu_share(Vec<T> x, Vec<T> square) {
  const Tag<T> d;
  constexpr double kSlope = -2.0 * 0.7978845608028654 * 1.4426950408889634;
  const Vec<T> one = hn::Set(d, T(1));
  const Vec<T> cubic = hn::MulAdd(square, hn::Set(d, T(0.044715 * kSlope)), hn::Set(d, T(kSlope)));
  return hn::Div(one, hn::Add(one, exp2<T>(hn::Mul(x, cubic))));
}

// share + x · share (1 − share) · 2u'
template <typename T>
HWY_INLINE Vec<T> gelu_slope(Vec<T> x) {
  const Tag<T> d;
  constexpr double kTwice = 2.0 * 0.7978845608028654;
  const Vec<T> square = hn::Mul(x, x);
  const Vec<T> share = gelu_share<T>(x, square);
  const Vec<T> inner =
      hn::MulAdd(square, hn::Set(d, T(3.0 * 0.044715 * kTwice)), hn::Set(d, T(kTwice)));
  const Vec<T> rest = hn::Sub(hn::Set(d, T(1)), share);
  return hn::MulAdd(hn::Mul(x, inner), hn::Mul(share, rest), share);
}

// The exact one, in float64: an option for models that were trained with it, not for speed.
HWY_INLINE double exact_share(double x) {
  return 0.5 * __builtin_erfc(-0.7071067811865475 * x);
}
HWY_INLINE double exact_slope(double x) {
  return exact_share(x) + x * 0.3989422804014327 * __builtin_exp(-0.5 * x * x);
}

template <typename T>
HWY_NOINLINE void gelu(const T* x, dim_t count, bool erf, T* y) {
  if (erf) {
    for (dim_t k = 0; k < count; ++k) {
      y[k] = static_cast<T>(double(x[k]) * exact_share(double(x[k])));
    }
    return;
  }
  for (dim_t k = 0; k < count; k += kLanes<T>) {
    const Vec<T> value = load_some(x + k, count - k);
    store_some(hn::Mul(value, gelu_share<T>(value, hn::Mul(value, value))), count - k, y + k);
  }
}

template <typename T>
HWY_NOINLINE void gelu_backward(const T* x, const T* dy, dim_t count, bool erf, T* dx) {
  if (erf) {
    for (dim_t k = 0; k < count; ++k) {
      dx[k] = static_cast<T>(double(dy[k]) * exact_slope(double(x[k])));
    }
    return;
  }
  for (dim_t k = 0; k < count; k += kLanes<T>) {
    const Vec<T> slope = gelu_slope<T>(load_some(x + k, count - k));
    store_some(hn::Mul(load_some(dy + k, count - k), slope), count - k, dx + k);
  }
}

template <typename T>
HWY_NOINLINE void keep(std::uint64_t kept, dim_t count, T grown, T* x) {
  const Vec<T> factor = hn::Set(Tag<T>(), grown);
  for (dim_t k = 0; k < count; k += kLanes<T>) {
    const Vec<T> value = hn::Mul(load_some(x + k, count - k), factor);
    store_some(hn::IfThenElseZero(mask_of<T>(kept >> k, 0), value), count - k, x + k);
  }
}

template <typename T>
HWY_NOINLINE void add(const T* x, dim_t count, T* to) {
  for (dim_t k = 0; k < count; k += kLanes<T>) {
    store_some(hn::Add(load_some(to + k, count - k), load_some(x + k, count - k)), count - k,
               to + k);
  }
}

template <typename T>
void fill_model(ModelKernels<T>* table) {
  *table = {layer_norm<T>, layer_norm_backward<T>, gelu<T>, gelu_backward<T>, keep<T>, add<T>};
}

void model_f32(ModelKernels<float>* table) {
  fill_model(table);
}
#if HWY_HAVE_FLOAT64
void model_f64(ModelKernels<double>* table) {
  fill_model(table);
}
#endif

}  // namespace cephalo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cephalo::kernels {
void add_model_kernels(Isa isa, ModelKernels<float>* table) {
  CEPHALO_FOR_ISA(isa, model_f32)(table);
}
void add_model_kernels(Isa isa, ModelKernels<double>* table) {
  CEPHALO_FOR_ISA_F64(isa, model_f64)(table);
}
}  // namespace cephalo::kernels
#endif
