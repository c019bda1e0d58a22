// What a model does between its products, row by row, beside plain code in float64.
#include <algorithm>

#include "tests/kernels/masked_tile.h"

namespace cephalo::kernels::testing {
namespace {

template <typename T>
struct ModelKernelsTest : KernelTest<T> {
  static const ModelKernels<T>& model() { return model_kernels<T>(current_isa()); }
};
TYPED_TEST_SUITE(ModelKernelsTest, NumberTypes);

double mean_of(const std::vector<double>& x) {
  double sum = 0.0;
  for (const double value : x) sum += value;
  return sum / static_cast<double>(x.size());
}

TYPED_TEST(ModelKernelsTest, layer_norm_normalises_rows_of_every_width) {
  using T = TypeParam;
  Numbers numbers(20);
  std::vector<dim_t> widths{100, 513};
  for (dim_t width = 1; width <= this->most(); ++width) widths.push_back(width);
  for (const dim_t width : widths) {
    for (const bool adds : {false, true}) {
      constexpr dim_t kCount = 3;
      const Guarded<T> before(kCount * width, numbers, -2.0, 3.0);
      const Guarded<T> added(kCount * width, numbers);
      const Guarded<T> weight(width, numbers, -2.0, 2.0);
      const Guarded<T> bias(width, numbers);
      Guarded<T> x = before;
      Guarded<T> y(kCount * width);
      Guarded<T> moments(2 * kCount);
      const T epsilon = T(1e-5);
      NormRows<T> rows{kCount,        width,       x.data(), adds ? added.data() : nullptr,
                       weight.data(), bias.data(), epsilon,  y.data(),
                       moments.data()};
      this->model().layer_norm(rows);
      ASSERT_TRUE(x.fences_stand() && y.fences_stand() && moments.fences_stand());
      const double rounding = this->kEpsilon * static_cast<double>(width + 8);
      for (dim_t r = 0; r < kCount; ++r) {
        std::vector<double> row;
        std::vector<double> squares;
        for (dim_t k = r * width; k < (r + 1) * width; ++k) {
          ASSERT_EQ(x[k], adds ? before[k] + added[k] : before[k]);
          row.push_back(double{x[k]});
        }
        const double mean = mean_of(row);
        for (const double value : row) squares.push_back((value - mean) * (value - mean));
        const double rstd = 1.0 / std::sqrt(mean_of(squares) + double{epsilon});
        ASSERT_NEAR(double{moments[2 * r]}, mean, 4 * rounding);
        ASSERT_NEAR(double{moments[2 * r + 1]}, rstd, rstd * rounding);
        for (dim_t k = 0; k < width; ++k) {
          const double normal = (row[static_cast<std::size_t>(k)] - mean) * rstd;
          const double expected = normal * double{weight[k]} + double{bias[k]};
          // An error of the mean, at most that of numbers up to 4, grows by rstd.
          const double bound = rounding * (2.0 * (4.0 * rstd + std::abs(normal)) + 1.0);
          ASSERT_NEAR(double{y[r * width + k]}, expected, bound) << k << " of " << width;
        }
      }
      Guarded<T> same = y;
      Guarded<T> x_again = before;
      rows.x = x_again.data();
      rows.moments = nullptr;
      this->model().layer_norm(rows);
      ASSERT_TRUE(y.same_bits(same)) << "without moments";
    }
  }
}

TYPED_TEST(ModelKernelsTest, layer_norm_backward_adds_the_gradients) {
  using T = TypeParam;
  Numbers numbers(21);
  std::vector<dim_t> widths{100, 513};
  for (dim_t width = 1; width <= this->most(); ++width) widths.push_back(width);
  for (const dim_t width : widths) {
    constexpr dim_t kCount = 3;
    const Guarded<T> x(kCount * width, numbers);
    const Guarded<T> moments(2 * kCount, numbers, 0.3, 1.7);  // whatever they are, they are used
    const Guarded<T> weight(width, numbers);
    const Guarded<T> dy(kCount * width, numbers);
    const Guarded<T> dx_before(kCount * width, numbers);
    const Guarded<T> dweight_before(width, numbers);
    const Guarded<T> dbias_before(width, numbers);
    Guarded<T> dx = dx_before;
    Guarded<T> dweight = dweight_before;
    Guarded<T> dbias = dbias_before;
    this->model().layer_norm_backward({kCount, width, x.data(), moments.data(), weight.data(),
                                       dy.data(), dx.data(), dweight.data(), dbias.data()});
    ASSERT_TRUE(dx.fences_stand() && dweight.fences_stand() && dbias.fences_stand());
    // All numbers are below 4, and so are their products with a rstd below 2, twice.
    const double bound = 64 * this->kEpsilon * static_cast<double>(width + 8);
    std::vector<double> dweight_sum(static_cast<std::size_t>(width));
    std::vector<double> dbias_sum(static_cast<std::size_t>(width));
    for (dim_t r = 0; r < kCount; ++r) {
      std::vector<double> normal, weighted, product;
      for (dim_t k = 0; k < width; ++k) {
        const dim_t at = r * width + k;
        normal.push_back((double{x[at]} - double{moments[2 * r]}) * double{moments[2 * r + 1]});
        weighted.push_back(double{dy[at]} * double{weight[k]});
        product.push_back(weighted.back() * normal.back());
        dweight_sum[static_cast<std::size_t>(k)] += double{dy[at]} * normal.back();
        dbias_sum[static_cast<std::size_t>(k)] += double{dy[at]};
      }
      for (dim_t k = 0; k < width; ++k) {
        const auto i = static_cast<std::size_t>(k);
        const double gradient = double{moments[2 * r + 1]} *
                                (weighted[i] - mean_of(weighted) - normal[i] * mean_of(product));
        ASSERT_NEAR(double{dx[r * width + k]}, double{dx_before[r * width + k]} + gradient, bound);
      }
    }
    for (dim_t k = 0; k < width; ++k) {
      const auto i = static_cast<std::size_t>(k);
      ASSERT_NEAR(double{dweight[k]}, double{dweight_before[k]} + dweight_sum[i], bound);
      ASSERT_NEAR(double{dbias[k]}, double{dbias_before[k]} + dbias_sum[i], bound);
    }
  }
}

// Both GELUs: x times the share of it that passes.
struct Gelu {
  bool erf;
  double x;

  // tanh's: 1 / (1 + 2^power)
  double power() const { return -2.0 * 0.7978845608028654 * kLog2E * (x + 0.044715 * x * x * x); }
  double share() const {
    return erf ? 0.5 * std::erfc(-x / std::sqrt(2.0)) : 1.0 / (1.0 + std::exp2(power()));
  }
  double steepness() const { return 2.0 * 0.7978845608028654 * (1.0 + 3.0 * 0.044715 * x * x); }
  double slope() const {
    if (erf) return share() + x * 0.3989422804014327 * std::exp(-0.5 * x * x);
    return share() + x * share() * (1.0 - share()) * steepness();
  }
  // Relative, of the share: the exponent is rounded at its size.
  template <typename T>
  double share_error() const {
    const double epsilon = std::numeric_limits<T>::epsilon();
    if (erf) return (2.0 + x * x) * (sizeof(T) == 4 ? 1e-14 : 4 * epsilon);
    return 3 * epsilon + (1.0 - share()) * (2 * epsilon * std::abs(power()) + kExp2Error<T>);
  }
};

// Numbers of every size on both sides of 0.
template <typename T>
Guarded<T> gelu_inputs(dim_t count, Numbers& numbers) {
  Guarded<T> x(count);
  for (dim_t k = 0; k < count; ++k) {
    const double size = std::exp2(numbers.uniform(-20.0, 3.5));
    x[k] = static_cast<T>(numbers.integer(0, 2) == 0 ? size : -size);
  }
  return x;
}

TYPED_TEST(ModelKernelsTest, gelu_is_exact_to_its_roundings_at_every_length) {
  using T = TypeParam;
  Numbers numbers(22);
  const double least = sizeof(T) == 4 ? 1e-36 : 1e-300;  // a share below 2^-100 is 0
  for (const bool erf : {false, true}) {
    for (dim_t count = 1; count <= this->most() + 2000; count += count == this->most() ? 2000 : 1) {
      const Guarded<T> x = gelu_inputs<T>(count, numbers);
      Guarded<T> y(count);
      this->model().gelu(x.data(), count, erf, y.data());
      ASSERT_TRUE(y.fences_stand());
      for (dim_t k = 0; k < count; ++k) {
        const Gelu plain{erf, double{x[k]}};
        const double expected = plain.x * plain.share();
        const double relative = plain.share_error<T>() + this->kEpsilon;
        ASSERT_NEAR(double{y[k]}, expected, std::abs(expected) * relative + least) << plain.x;
      }
    }
  }
}

TYPED_TEST(ModelKernelsTest, gelu_backward_is_exact_to_its_roundings_and_works_in_place) {
  using T = TypeParam;
  Numbers numbers(23);
  for (const bool erf : {false, true}) {
    for (dim_t count = 1; count <= this->most() + 2000; count += count == this->most() ? 2000 : 1) {
      const Guarded<T> x = gelu_inputs<T>(count, numbers);
      const Guarded<T> dy(count, numbers);
      Guarded<T> dx(count);
      this->model().gelu_backward(x.data(), dy.data(), count, erf, dx.data());
      ASSERT_TRUE(dx.fences_stand());
      for (dim_t k = 0; k < count; ++k) {
        const Gelu plain{erf, double{x[k]}};
        const double passes = plain.share();
        const double grows = std::abs(plain.x) * passes * (erf ? 1.0 : plain.steepness());
        // 1 − share is as exact as share, which is 1 for large x.
        const double relative = 2 * plain.share_error<T>() + 6 * this->kEpsilon;
        ASSERT_NEAR(double{dx[k]}, double{dy[k]} * plain.slope(),
                    std::abs(double{dy[k]}) * (passes + grows) * relative + 1e-36)
            << plain.x;
      }
      Guarded<T> in_place = dy;
      this->model().gelu_backward(x.data(), in_place.data(), count, erf, in_place.data());
      ASSERT_TRUE(in_place.same_bits(dx));
    }
  }
}

TYPED_TEST(ModelKernelsTest, keep_drops_and_lets_grow_by_single_bits) {
  using T = TypeParam;
  Numbers numbers(24);
  for (dim_t count = 1; count <= 64; ++count) {
    const Guarded<T> before(count, numbers);
    const std::uint64_t kept = numbers.bits();
    Guarded<T> x = before;
    this->model().keep(kept, count, T(1.1), x.data());
    ASSERT_TRUE(x.fences_stand());
    for (dim_t k = 0; k < count; ++k) {
      ASSERT_EQ(x[k], (kept >> k & 1) != 0 ? T(1.1) * before[k] : T(0)) << k << " of " << count;
    }
  }
}

TYPED_TEST(ModelKernelsTest, add_is_plain_addition_at_every_length) {
  using T = TypeParam;
  Numbers numbers(25);
  for (dim_t count = 1; count <= this->most(); ++count) {
    const Guarded<T> x(count, numbers);
    const Guarded<T> before(count, numbers);
    Guarded<T> to = before;
    this->model().add(x.data(), count, to.data());
    ASSERT_TRUE(to.fences_stand());
    for (dim_t k = 0; k < count; ++k) ASSERT_EQ(to[k], before[k] + x[k]);
  }
}

}  // namespace
}  // namespace cephalo::kernels::testing
