// What training does to every logit and every parameter.
#include "cephalo/kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cephalo/kernels/cpu/train.cc"
#include <hwy/foreach_target.h>

#include "cephalo/kernels/cpu/dispatch.h"
#include "cephalo/kernels/cpu/rows-inl.h"
#include "cephalo/kernels/cpu/simd-inl.h"
#include "cephalo/kernels/tables.h"

HWY_BEFORE_NAMESPACE();
namespace cephalo::kernels::HWY_NAMESPACE {

// Elements whose sum is made in lanes before it is added up in float64.
constexpr dim_t kSumBlock = 512;

// The largest of a row; NaN when the row holds one.
template <typename T>
HWY_INLINE T largest_of(const T* x, dim_t count) {
  const Tag<T> d;
  const T least = static_cast<T>(-__builtin_inf());
  Vec<T> largest = hn::Set(d, least);
  Vec<T> poison = hn::Zero(d);  // NaN once there was one: −inf must not make it so
  for (dim_t k = 0; k < count; k += kLanes<T>) {
    const Vec<T> value = load_some(x + k, count - k, least);
    largest = hn::Max(largest, value);
    poison = hn::IfThenElse(hn::Eq(value, value), poison, value);
  }
  HWY_ALIGN T lanes[2][kLanes<T>];
  hn::Store(largest, d, lanes[0]);
  hn::Store(poison, d, lanes[1]);
  T result = lanes[0][0];
  for (const T lane : lanes[0]) result = lane > result ? lane : result;
  for (const T lane : lanes[1]) result = lane != lane ? lane : result;
  return result;
}

// powers[k] = e^(x[k] − largest), unless null; -> their sum
template <typename T>
HWY_INLINE double sum_of_powers(const T* x, dim_t count, T largest, T* powers) {
  const Tag<T> d;
  const Vec<T> top = hn::Set(d, largest);
  const Vec<T> base = hn::Set(d, T(1.4426950408889634));
  double sum = 0.0;
  for (dim_t begin = 0; begin < count; begin += kSumBlock) {
    const dim_t end = count - begin < kSumBlock ? count : begin + kSumBlock;
    Vec<T> part = hn::Zero(d);
    for (dim_t k = begin; k < end; k += kLanes<T>) {
      const Vec<T> value = load_some(x + k, end - k, static_cast<T>(-__builtin_inf()));
      const Vec<T> power = exp2<T>(hn::Mul(hn::Sub(value, top), base));
      part = hn::Add(part, power);
      if (powers != nullptr) store_some(power, end - k, powers + k);
    }
    sum += sum_of_lanes<T>(part);
  }
  return sum;
}

template <typename T>
HWY_NOINLINE double cross_entropy(const T* logits, dim_t count, dim_t target, T factor,
                                  T* dlogits) {
  const Tag<T> d;
  const T largest = largest_of(logits, count);
  if (!(largest - largest == T(0))) return __builtin_nan("");
  const double wanted = static_cast<double>(logits[target]) - static_cast<double>(largest);
  const double sum = sum_of_powers(logits, count, largest, dlogits);
  if (dlogits != nullptr) {
    const Vec<T> share = hn::Set(d, static_cast<T>(static_cast<double>(factor) / sum));
    for (dim_t k = 0; k < count; k += kLanes<T>) {
      store_some(hn::Mul(load_some(dlogits + k, count - k), share), count - k, dlogits + k);
    }
    dlogits[target] -= factor;
  }
  return __builtin_log(sum) - wanted;
}

template <typename T>
HWY_NOINLINE void adamw(const AdamWFactors<T>& f, const T* gradient, dim_t count, T* parameter,
                        T* mean, T* mean_square) {
  const Tag<T> d;
  const Vec<T> root_factor = hn::Set(d, T(1) / f.root_correction);
  for (dim_t k = 0; k < count; k += kLanes<T>) {
    const dim_t left = count - k;
    const Vec<T> g = load_some(gradient + k, left);
    const Vec<T> m = hn::MulAdd(hn::Set(d, f.mean_kept), load_some(mean + k, left),
                                hn::Mul(hn::Set(d, f.mean_share), g));
    const Vec<T> s = hn::MulAdd(hn::Set(d, f.square_kept), load_some(mean_square + k, left),
                                hn::Mul(hn::Set(d, f.square_share), hn::Mul(g, g)));
    const Vec<T> root = hn::MulAdd(hn::Sqrt(s), root_factor, hn::Set(d, f.epsilon));
    const Vec<T> step = hn::Div(hn::Mul(hn::Set(d, f.step_size), m), root);
    const Vec<T> p = load_some(parameter + k, left);
    store_some(hn::Sub(hn::Mul(hn::Set(d, f.kept), p), step), left, parameter + k);
    store_some(m, left, mean + k);
    store_some(s, left, mean_square + k);
  }
}

template <typename T>
HWY_NOINLINE double sum_of_squares(const T* x, dim_t count) {
  const Tag<T> d;
  double sum = 0.0;
  for (dim_t begin = 0; begin < count; begin += kSumBlock) {
    const dim_t end = count - begin < kSumBlock ? count : begin + kSumBlock;
    Vec<T> part = hn::Zero(d);
    for (dim_t k = begin; k < end; k += kLanes<T>) {
      const Vec<T> value = load_some(x + k, end - k);
      part = hn::MulAdd(value, value, part);
    }
    sum += sum_of_lanes<T>(part);
  }
  return sum;
}

template <typename T>
void fill_train(TrainKernels<T>* table) {
  *table = {cross_entropy<T>, adamw<T>, sum_of_squares<T>};
}

void train_f32(TrainKernels<float>* table) {
  fill_train(table);
}
#if HWY_HAVE_FLOAT64
void train_f64(TrainKernels<double>* table) {
  fill_train(table);
}
#endif

}  // namespace cephalo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cephalo::kernels {
void add_train_kernels(Isa isa, TrainKernels<float>* table) {
  CEPHALO_FOR_ISA(isa, train_f32)(table);
}
void add_train_kernels(Isa isa, TrainKernels<double>* table) {
  CEPHALO_FOR_ISA_F64(isa, train_f64)(table);
}
}  // namespace cephalo::kernels
#endif
