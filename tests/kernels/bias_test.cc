// A bias on its way into a tile: added element by element, and −inf hides.
#include <algorithm>

#include "tests/kernels/kernel_test.h"

namespace cephalo::kernels::testing {
namespace {

template <typename T>
using BiasKernelsTest = KernelTest<T>;
TYPED_TEST_SUITE(BiasKernelsTest, NumberTypes);

// A bias of `queries` rows, in which about a fifth is −inf.
struct Bias : StoredRows {
  Bias(dim_t queries, dim_t keys, dim_t stride, DType dtype, Numbers& numbers)
      : StoredRows(queries, keys, stride, dtype, numbers) {
    for (dim_t x = 0; x < queries; ++x) {
      for (dim_t j = 0; j < keys; ++j) {
        if (numbers.integer(0, 5) == 0) set(x, j, -HUGE_VAL);
      }
    }
  }
};

// The sum of both biases at one place of the tile; −inf: hidden.
template <typename T>
T sum_of(const Bias& first, const Bias& second, dim_t x, dim_t j) {
  return static_cast<T>(first.at(x, j)) + static_cast<T>(second.at(x, j));
}

// One word of the tile's rows and its numbers against the plain sum. at(x): the sum in lane x.
template <typename T, typename At>
void expect_row(const At& at, dim_t lanes, std::uint64_t before, std::uint64_t visible,
                const T* bias) {
  for (dim_t x = 0; x < lanes; ++x) {
    const T sum = at(x);
    const bool shown = sum != -std::numeric_limits<T>::infinity();
    ASSERT_EQ((visible >> x & 1) != 0, shown && (before >> x & 1) != 0) << "lane " << x;
    if (shown) {
      ASSERT_EQ(bias[x], sum) << "lane " << x;
    } else {
      ASSERT_TRUE(std::isfinite(bias[x])) << "lane " << x;
    }
  }
}

template <typename T, typename Check>
void for_all_tiles(dim_t most_rows, const Check& check) {
  Numbers numbers(10);
  for (const DType dtype : kStorageTypes) {
    for (const dim_t stride : {1, 3}) {
      for (int columns = 1; columns <= kMaxColumns; ++columns) {
        const dim_t width = columns * attend_kernels<T, T>(isa_for<T>())->lanes;
        for (dim_t lanes = 1; lanes <= width; ++lanes) {
          const dim_t rows = numbers.integer(1, most_rows + 1);
          check(rows, lanes, width, stride, dtype, numbers);
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

TYPED_TEST(BiasKernelsTest, add_bias_adds_in_lanes_of_queries) {
  using T = TypeParam;
  for_all_tiles<T>(
      70, [&](dim_t keys, dim_t queries, dim_t width, dim_t stride, DType dtype, Numbers& numbers) {
        const Bias first(queries, keys, stride, dtype, numbers);
        const Bias second(queries, keys, 4 - stride, DType::f32, numbers);
        Guarded<T> bias(keys * width);
        Guarded<std::uint64_t> visible(keys);
        Guarded<std::uint64_t> before(keys);
        for (dim_t j = 0; j < keys; ++j) visible[j] = before[j] = numbers.bits();
        this->attend().add_bias(first.rows(), width, true, bias.data(), visible.data());
        this->attend().add_bias(second.rows(), width, false, bias.data(), visible.data());
        ASSERT_TRUE(bias.fences_stand() && visible.fences_stand());
        for (dim_t j = 0; j < keys; ++j) {
          const auto at = [&](dim_t x) { return sum_of<T>(first, second, x, j); };
          expect_row(at, queries, before[j], visible[j], bias.data() + j * width);
        }
      });
}

TYPED_TEST(BiasKernelsTest, add_bias_rows_adds_in_lanes_of_keys) {
  using T = TypeParam;
  for_all_tiles<T>(
      70, [&](dim_t queries, dim_t keys, dim_t width, dim_t stride, DType dtype, Numbers& numbers) {
        const Bias first(queries, keys, stride, dtype, numbers);
        const Bias second(queries, keys, 4 - stride, DType::f32, numbers);
        Guarded<T> bias(queries * width);
        Guarded<std::uint64_t> visible(queries);
        Guarded<std::uint64_t> before(queries);
        for (dim_t x = 0; x < queries; ++x) visible[x] = before[x] = numbers.bits();
        this->attend().add_bias_rows(first.rows(), width, true, bias.data(), visible.data());
        this->attend().add_bias_rows(second.rows(), width, false, bias.data(), visible.data());
        ASSERT_TRUE(bias.fences_stand() && visible.fences_stand());
        for (dim_t x = 0; x < queries; ++x) {
          const auto at = [&](dim_t j) { return sum_of<T>(first, second, x, j); };
          expect_row(at, keys, before[x], visible[x], bias.data() + x * width);
        }
      });
}

// Both ends of a type may add up to −inf, and a bias that hides everything is seen at once.
TYPED_TEST(BiasKernelsTest, two_finite_biases_may_hide_and_one_may_hide_all) {
  using T = TypeParam;
  Numbers numbers(11);
  const dim_t width = this->lanes();
  for (const bool hides_all : {true, false}) {
    StoredRows bias_rows(width, 3, 1, DTypeOf<T>::value, numbers);
    for (dim_t x = 0; x < width; ++x) {
      for (dim_t j = 0; j < 3; ++j) {
        bias_rows.set(x, j, hides_all ? -HUGE_VAL : double{std::numeric_limits<T>::lowest()});
      }
    }
    Guarded<T> bias(3 * width);
    Guarded<std::uint64_t> visible = Guarded<std::uint64_t>::filled(3, ~std::uint64_t{0});
    this->attend().add_bias(bias_rows.rows(), width, true, bias.data(), visible.data());
    this->attend().add_bias(bias_rows.rows(), width, false, bias.data(), visible.data());
    const std::uint64_t lanes = (std::uint64_t{1} << width) - 1;
    for (dim_t j = 0; j < 3; ++j) EXPECT_EQ(visible[j] & lanes, 0U);
    for (dim_t k = 0; k < bias.count(); ++k) EXPECT_TRUE(std::isfinite(bias[k]));
    EXPECT_TRUE(bias.fences_stand() && visible.fences_stand());
  }
}

}  // namespace
}  // namespace cephalo::kernels::testing
