// What training does to every logit and every parameter, beside plain code in float64.
#include <algorithm>

#include "tests/kernels/masked_tile.h"

namespace cephalo::kernels::testing {
namespace {

template <typename T>
struct TrainKernelsTest : KernelTest<T> {
  static const TrainKernels<T>& train() { return train_kernels<T>(current_isa()); }
  // Every tail, and lengths around the 512 numbers that are summed at a time.
  static std::vector<dim_t> counts() {
    std::vector<dim_t> counts{511, 512, 513, 1025};
    for (dim_t count = 1; count <= KernelTest<T>::most(); ++count) counts.push_back(count);
    return counts;
  }
  // Sums in lanes, of 512 numbers at most, then in float64.
  static double sum_error(dim_t count) {
    const dim_t chain = std::min<dim_t>(count, 512) / KernelTest<T>::lanes() + 2;
    return KernelTest<T>::kEpsilon * 0.5 * static_cast<double>(chain);
  }
};
TYPED_TEST_SUITE(TrainKernelsTest, NumberTypes);

TYPED_TEST(TrainKernelsTest, sums_of_squares_are_off_by_their_roundings_at_most) {
  using T = TypeParam;
  Numbers numbers(30);
  for (const dim_t count : this->counts()) {
    const Guarded<T> x(count, numbers);
    long double sum = 0.0L;
    for (dim_t k = 0; k < count; ++k) sum += static_cast<long double>(x[k]) * x[k];
    const double found = this->train().sum_of_squares(x.data(), count);
    EXPECT_LE(std::abs(static_cast<double>(found - sum)),
              static_cast<double>(sum) * this->sum_error(count))
        << count;
  }
}

TYPED_TEST(TrainKernelsTest, cross_entropy_and_its_gradient_are_those_of_a_plain_softmax) {
  using T = TypeParam;
  Numbers numbers(31);
  for (const dim_t count : this->counts()) {
    for (const dim_t target : {dim_t{0}, count / 2, count - 1}) {
      const Guarded<T> logits(count, numbers, -6.0, 6.0);
      const T factor = T(0.7);
      Guarded<T> dlogits(count);
      const double loss =
          this->train().cross_entropy(logits.data(), count, target, factor, dlogits.data());
      ASSERT_TRUE(dlogits.fences_stand());
      double sum = 0.0;
      for (dim_t k = 0; k < count; ++k) sum += std::exp(double{logits[k]});
      // Distances are below 12: each is rounded, and turned to base 2.
      const double relative = kExp2Error<T> + 12 * 3 * this->kEpsilon + this->sum_error(count);
      ASSERT_NEAR(loss, std::log(sum) - double{logits[target]}, relative) << count;
      for (dim_t k = 0; k < count; ++k) {
        const double weight = std::exp(double{logits[k]}) / sum;
        const double expected = double{factor} * (weight - (k == target ? 1.0 : 0.0));
        ASSERT_NEAR(double{dlogits[k]}, expected,
                    weight * 2 * relative + (k == target ? this->kEpsilon : 0.0))
            << k << " of " << count;
      }
      ASSERT_EQ(loss, this->train().cross_entropy(logits.data(), count, target, factor, nullptr));
      Guarded<T> in_place = logits;
      ASSERT_EQ(loss, this->train().cross_entropy(in_place.data(), count, target, factor,
                                                  in_place.data()));
      ASSERT_TRUE(in_place.same_bits(dlogits));
    }
  }
}

// NaN at any place, a largest number that is infinite, nothing but −inf.
TYPED_TEST(TrainKernelsTest, a_row_without_a_finite_largest_number_is_nan_and_left_alone) {
  using T = TypeParam;
  Numbers numbers(32);
  const T infinity = std::numeric_limits<T>::infinity();
  const auto expect_left_alone = [&](const Guarded<T>& logits) {
    Guarded<T> dlogits(logits.count());
    EXPECT_TRUE(std::isnan(
        this->train().cross_entropy(logits.data(), logits.count(), 0, T(1), dlogits.data())));
    EXPECT_TRUE(dlogits.untouched(0, logits.count()) && dlogits.fences_stand());
  };
  for (dim_t count = 1; count <= this->most(); ++count) {
    for (dim_t at = 0; at < count; ++at) {
      for (const T wrong : {std::numeric_limits<T>::quiet_NaN(), infinity}) {
        Guarded<T> logits(count, numbers);
        logits[at] = wrong;
        expect_left_alone(logits);
      }
    }
    expect_left_alone(Guarded<T>::filled(count, -infinity));
    if (count == 1) continue;
    Guarded<T> hidden = Guarded<T>::filled(count, -infinity);
    hidden[count - 1] = T(3);
    Guarded<T> dlogits(count);
    EXPECT_EQ(this->train().cross_entropy(hidden.data(), count, count - 1, T(1), dlogits.data()),
              0.0);
    for (dim_t k = 0; k < count; ++k) EXPECT_EQ(dlogits[k], T(0));
  }
}

TYPED_TEST(TrainKernelsTest, adamw_moves_every_element_as_written_in_the_paper) {
  using T = TypeParam;
  Numbers numbers(33);
  const AdamWFactors<T> f{T(0.999), T(0.9), T(0.1), T(0.95), T(0.05), T(0.4), T(1e-8), T(3e-3)};
  for (const dim_t count : this->counts()) {
    const Guarded<T> gradient(count, numbers);
    const Guarded<T> parameter_before(count, numbers);
    const Guarded<T> mean_before(count, numbers);
    const Guarded<T> square_before(count, numbers, 0.0, 1.0);
    Guarded<T> parameter = parameter_before;
    Guarded<T> mean = mean_before;
    Guarded<T> square = square_before;
    this->train().adamw(f, gradient.data(), count, parameter.data(), mean.data(), square.data());
    ASSERT_TRUE(parameter.fences_stand() && mean.fences_stand() && square.fences_stand());
    for (dim_t k = 0; k < count; ++k) {
      const double g = double{gradient[k]};
      const double kept_mean = double{f.mean_kept} * double{mean_before[k]};
      const double kept_square = double{f.square_kept} * double{square_before[k]};
      const double new_square = double{f.square_share} * g * g;
      ASSERT_NEAR(double{mean[k]}, kept_mean + double{f.mean_share} * g,
                  2 * this->kEpsilon * (std::abs(kept_mean) + double{f.mean_share} * std::abs(g)));
      ASSERT_NEAR(double{square[k]}, kept_square + new_square,
                  2 * this->kEpsilon * (kept_square + new_square));
      // The step from the moments as they were stored.
      const double root = std::sqrt(double{square[k]}) / double{f.root_correction};
      const double step = double{f.step_size} * double{mean[k]} / (root + double{f.epsilon});
      const double kept = double{f.kept} * double{parameter_before[k]};
      ASSERT_NEAR(double{parameter[k]}, kept - step,
                  this->kEpsilon * (std::abs(kept) + 6 * std::abs(step)));
    }
  }
}

}  // namespace
}  // namespace cephalo::kernels::testing
