// exp2 and tanh, as far from the truth as docs/numerics.md and docs/kernels.md say. Both are seen
// through `weigh` with a fixed reference of 0: then a weight is 2^(q · k), and with a softcap
// 2^(softcap · tanh(q · k / softcap)).
#include <algorithm>

#include "cephalo/core/format.h"
#include "tests/kernels/kernel_test.h"
#include "tests/support/tensors.h"

namespace cephalo::kernels::testing {
namespace {

// Where a multiply-add rounds twice polynomials are a little less exact.
bool rounds_once() {
  const Isa isa = current_isa();
  return isa == Isa::avx512 || isa == Isa::avx2 || isa == Isa::neon;
}

// 2^x for each x of a vector of lanes, or 2^(softcap · tanh(x / softcap)).
template <typename T>
std::vector<T> weights_of(const std::vector<T>& x, T softcap = T(0)) {
  const AttendKernels<T, T>& kernels = *attend_kernels<T, T>(isa_for<T>());
  const dim_t width = kernels.lanes;
  const std::vector<T> keys(static_cast<std::size_t>(kernels.rows), T(1));
  const std::vector<T> values(static_cast<std::size_t>(kernels.rows), T(0));
  std::vector<T> weights(static_cast<std::size_t>(kernels.rows * width));
  std::vector<T> context(static_cast<std::size_t>(kernels.rows * width));
  std::vector<T> reference(static_cast<std::size_t>(width), T(0));
  std::vector<T> sum(static_cast<std::size_t>(width), T(0));
  StripColumns strips[1];
  TileMask<T> mask{};
  mask.softcap = softcap;

  std::vector<T> result;
  for (std::size_t at = 0; at < x.size(); at += static_cast<std::size_t>(width)) {
    std::vector<T> q(static_cast<std::size_t>(width), T(0));
    const std::size_t count = std::min(q.size(), x.size() - at);
    std::copy_n(x.begin() + static_cast<std::ptrdiff_t>(at), count, q.begin());
    const KeyBlock<T> block{keys.data(), values.data(), kernels.rows, 1, 1, kernels.rows, true};
    QueryTile<T, T> tile{
        q.data(), context.data(), reference.data(), sum.data(), 1, ~std::uint64_t{0}, true,
        0,        false};
    kernels.weigh(block, tile, softcap == T(0) ? nullptr : &mask, weights.data(), strips);
    result.insert(result.end(), weights.begin(),
                  weights.begin() + static_cast<std::ptrdiff_t>(count));
  }
  return result;
}

template <typename T>
long double exact_exp2(T x) {
  return sizeof(T) == 4 ? std::exp2(double{x}) : std::exp2(static_cast<long double>(x));
}

template <typename T>
double largest_exp2_error(const std::vector<T>& x) {
  const std::vector<T> found = weights_of(x);
  double largest = 0.0;
  for (std::size_t k = 0; k < x.size(); ++k) {
    const long double exact = exact_exp2(x[k]);
    largest = std::max(largest, static_cast<double>(std::abs((found[k] - exact) / exact)));
  }
  return largest;
}

template <typename T>
using FunctionsTest = KernelTest<T>;
TYPED_TEST_SUITE(FunctionsTest, NumberTypes);

TYPED_TEST(FunctionsTest, exp2_is_as_exact_as_promised) {
  using T = TypeParam;
  const double promised = sizeof(T) == 8 ? 5e-16 : (rounds_once() ? 1.7e-7 : 1.9e-7);
  // The polynomial's own range and its ends, densely; then every power of two that there is.
  std::vector<T> x;
  const int steps = sizeof(T) == 8 ? 20000 : 200000;
  for (int k = -steps; k <= steps; ++k) x.push_back(static_cast<T>(0.75 * k / steps));
  Numbers numbers(1);
  const double lowest = sizeof(T) == 4 ? -100.0 : -900.0;
  const double highest = sizeof(T) == 4 ? 127.4 : 1023.4;
  for (int k = 0; k < steps; ++k) x.push_back(static_cast<T>(numbers.uniform(lowest, highest)));
  for (double whole = lowest; whole <= highest; ++whole) {
    for (const double part : {0.0, 0.5, -0.5, 0.4999999, -0.4999999}) {
      if (whole + part >= lowest) x.push_back(static_cast<T>(whole + part));
    }
  }
  const double error = largest_exp2_error(x);
  EXPECT_LE(error, promised);
  EXPECT_GE(error, promised / 10) << "the bound says nothing";
  cephalo::testing::report(format_text("exp2 of {} on {}: relative error {:.2e}",
                                       name(DTypeOf<T>::value), name(isa_for<T>()), error));
}

TYPED_TEST(FunctionsTest, exp2_of_whole_numbers_is_exact) {
  using T = TypeParam;
  std::vector<T> x;
  for (int power = sizeof(T) == 4 ? -100 : -900; power <= (sizeof(T) == 4 ? 127 : 1023); ++power) {
    x.push_back(static_cast<T>(power));
  }
  const std::vector<T> found = weights_of(x);
  for (std::size_t k = 0; k < x.size(); ++k) {
    EXPECT_EQ(found[k], static_cast<T>(std::exp2(double{x[k]}))) << x[k];
  }
}

TYPED_TEST(FunctionsTest, exp2_is_0_far_below_infinity_far_above_and_keeps_nan) {
  using T = TypeParam;
  const T infinity = std::numeric_limits<T>::infinity();
  const T lowest = sizeof(T) == 4 ? T(-100) : T(-900);
  const T below = std::nextafter(lowest, -infinity);
  const T highest = sizeof(T) == 4 ? T(128.5) : T(1024.5);
  const std::vector<T> found =
      weights_of<T>({lowest, below, lowest * 2, T(-1e30), -infinity, highest, T(1e6), T(1e30),
                     infinity, std::numeric_limits<T>::quiet_NaN()});
  EXPECT_EQ(found[0], std::exp2(lowest));
  for (std::size_t k = 1; k < 5; ++k) EXPECT_TRUE(same_number(found[k], T(0))) << k;
  for (std::size_t k = 5; k < 9; ++k) EXPECT_EQ(found[k], infinity) << k;
  EXPECT_TRUE(std::isnan(found[9]));
}

// log2 of a weight is softcap · tanh(x). A softcap that is a power of two is multiplied and divided
// by without rounding, and a large product makes what exp2 is off by small: a fortieth of itself.
template <typename T>
double tanh_error(T x) {
  int exponent = 0;
  std::frexp(std::tanh(x), &exponent);
  const T softcap = std::ldexp(T(1), 6 - exponent);  // softcap · |tanh x| is in [32, 64]
  const long double found =
      std::log2(static_cast<long double>(weights_of<T>({x * softcap}, softcap)[0])) / softcap;
  const long double exact = std::tanh(static_cast<long double>(x));
  return static_cast<double>(std::abs((found - exact) / exact));
}

TYPED_TEST(FunctionsTest, tanh_is_as_exact_as_promised) {
  using T = TypeParam;
  const double promised = sizeof(T) == 4 ? 3e-7 : 5e-16;  // float64: the C library's
  const double measured_by = (sizeof(T) == 4 ? 1.9e-7 : 5e-16) * 1.4427 / 32;
  Numbers numbers(2);
  double largest = 0.0;
  const auto look_at = [&](double x) {
    largest = std::max({largest, tanh_error(static_cast<T>(x)), tanh_error(static_cast<T>(-x))});
  };
  for (int k = 1; k <= 8000; ++k) look_at(k * 1.25e-4);  // both formulas, and 0.625 between them
  for (int k = 0; k < 4000; ++k) look_at(numbers.uniform(0.6, 12.0));
  for (int k = 0; k < 1000; ++k) look_at(std::exp2(numbers.uniform(-24.0, 0.0)));
  EXPECT_LE(largest, promised + measured_by);
#if defined(__EMSCRIPTEN__)  // one tanh for double and long double: there is no error to see
  const bool sees_errors = sizeof(T) == 4;
#else
  const bool sees_errors = true;
#endif
  if (sees_errors) {
    EXPECT_GE(largest, promised / 20) << "the bound says nothing";
  }
  cephalo::testing::report(format_text("tanh of {} on {}: relative error {:.2e}",
                                       name(DTypeOf<T>::value), name(isa_for<T>()), largest));
}

TYPED_TEST(FunctionsTest, tanh_is_odd_reaches_1_and_keeps_nan) {
  using T = TypeParam;
  const T nan = std::numeric_limits<T>::quiet_NaN();
  const std::vector<T> found = weights_of<T>({T(0), T(1e4), T(-1e4), nan}, T(2));
  EXPECT_EQ(found[0], T(1));
  EXPECT_EQ(found[1], T(4));
  EXPECT_EQ(found[2], T(0.25));
  EXPECT_TRUE(std::isnan(found[3]));
}

}  // namespace
}  // namespace cephalo::kernels::testing
