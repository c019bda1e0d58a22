// One panel of a matrix product, for every size that a block of rows and a panel can have.
#include "tests/kernels/kernel_test.h"

namespace cephalo::kernels::testing {
namespace {

template <typename T>
using GemmKernelsTest = KernelTest<T>;
TYPED_TEST_SUITE(GemmKernelsTest, NumberTypes);

template <typename T>
const GemmKernels<T, T>& gemm() {
  return *gemm_kernels<T, T>(isa_for<T>());
}

// A and B in the layouts of PanelProduct, laid out here by plain code.
template <typename T>
struct Panel {
  Panel(dim_t depth_, dim_t row_count_, dim_t column_count_, int columns_, Numbers& numbers,
        bool whole_numbers = false)
      : rows(gemm<T>().rows),
        width(columns_ * gemm<T>().lanes),
        depth(depth_),
        row_count(row_count_),
        column_count(column_count_),
        columns(columns_),
        c_stride(column_count_ + 3),
        a(round_up(row_count_, rows) * depth_),
        b(depth_ * width),
        bias(column_count_) {
    const auto draw = [&] {
      const double x = numbers.uniform(-8.0, 8.0);
      return static_cast<T>(whole_numbers ? std::round(x) : x);
    };
    for (dim_t k = 0; k < a.count(); ++k) a[k] = draw();
    for (dim_t k = 0; k < b.count(); ++k) b[k] = draw();
    for (dim_t k = 0; k < bias.count(); ++k) bias[k] = draw();
  }

  T a_at(dim_t r, dim_t k) const { return a[(r / rows * depth + k) * rows + r % rows]; }
  T b_at(dim_t k, dim_t c) const { return b[k * width + c]; }

  void multiply_into(Guarded<T>& c, bool begin, bool biased) const {
    gemm<T>().multiply_panel({a.data(), b.data(), depth, row_count, column_count, columns, c.data(),
                              c_stride, begin, biased ? bias.data() : nullptr});
  }
  Guarded<T> multiply() const {
    Guarded<T> c((row_count - 1) * c_stride + column_count);
    multiply_into(c, true, false);
    return c;
  }

  dim_t rows, width, depth, row_count, column_count;
  int columns;
  dim_t c_stride;
  Guarded<T> a, b, bias;
};

// Every number of rows and columns, each with some depth.
template <typename T, typename Check>
void for_all_sizes(bool whole_numbers, const Check& check) {
  Numbers numbers(3);
  for (int columns = 1; columns <= kMaxColumns; ++columns) {
    for (dim_t row_count = 1; row_count <= 2 * gemm<T>().rows + 1; ++row_count) {
      for (dim_t column_count = 1; column_count <= columns * gemm<T>().lanes; ++column_count) {
        const dim_t depth = numbers.integer(1, 2 * gemm<T>().lanes + 2);
        check(Panel<T>(depth, row_count, column_count, columns, numbers, whole_numbers));
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

template <typename T>
void expect_gaps_untouched(const Panel<T>& panel, const Guarded<T>& c) {
  ASSERT_TRUE(c.fences_stand());
  for (dim_t r = 0; r + 1 < panel.row_count; ++r) {
    ASSERT_TRUE(c.untouched(r * panel.c_stride + panel.column_count, (r + 1) * panel.c_stride));
  }
}

TYPED_TEST(GemmKernelsTest, a_panel_of_whole_numbers_is_exact_in_every_size) {
  using T = TypeParam;
  for_all_sizes<T>(true, [](const Panel<T>& panel) {
    const Guarded<T> c = panel.multiply();
    expect_gaps_untouched(panel, c);
    for (dim_t r = 0; r < panel.row_count; ++r) {
      for (dim_t x = 0; x < panel.column_count; ++x) {
        double sum = 0.0;
        for (dim_t k = 0; k < panel.depth; ++k) sum += double{panel.a_at(r, k)} * panel.b_at(k, x);
        ASSERT_EQ(double{c[r * panel.c_stride + x]}, sum) << r << ", " << x;
      }
    }
  });
}

TYPED_TEST(GemmKernelsTest, a_sum_is_off_by_its_roundings_at_most) {
  using T = TypeParam;
  Numbers numbers(4);
  const dim_t width = kMaxColumns * this->lanes();
  for (const dim_t depth : {dim_t{1}, dim_t{2}, this->most(), dim_t{97}, dim_t{384}}) {
    const Panel<T> panel(depth, this->rows() + 1, width, kMaxColumns, numbers);
    const Guarded<T> c = panel.multiply();
    for (dim_t r = 0; r < panel.row_count; ++r) {
      for (dim_t x = 0; x < width; ++x) {
        long double sum = 0.0L;
        double magnitude = 0.0;
        for (dim_t k = 0; k < depth; ++k) {
          const long double term = static_cast<long double>(panel.a_at(r, k)) * panel.b_at(k, x);
          sum += term;
          magnitude += static_cast<double>(std::abs(term));
        }
        // Each product and each addition rounds by half an epsilon.
        const double bound = magnitude * this->kEpsilon * 0.5 * static_cast<double>(depth + 1);
        ASSERT_LE(std::abs(static_cast<double>(c[r * panel.c_stride + x] - sum)), bound);
      }
    }
  }
}

TYPED_TEST(GemmKernelsTest, epilogues_add_to_the_product_what_was_there_and_the_bias) {
  using T = TypeParam;
  for_all_sizes<T>(false, [](const Panel<T>& panel) {
    const Guarded<T> product = panel.multiply();
    for (const bool begin : {true, false}) {
      for (const bool biased : {true, false}) {
        Guarded<T> c(product.count());
        const auto before = [&](dim_t r, dim_t x) { return static_cast<T>(r) - T(0.37) * T(x); };
        for (dim_t r = 0; r < panel.row_count; ++r) {
          for (dim_t x = 0; x < panel.column_count; ++x) c[r * panel.c_stride + x] = before(r, x);
        }
        panel.multiply_into(c, begin, biased);
        expect_gaps_untouched(panel, c);
        for (dim_t r = 0; r < panel.row_count; ++r) {
          for (dim_t x = 0; x < panel.column_count; ++x) {
            T expected = product[r * panel.c_stride + x];
            if (!begin) expected = before(r, x) + expected;
            if (biased) expected += panel.bias[x];
            ASSERT_EQ(c[r * panel.c_stride + x], expected) << r << ", " << x;
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace cephalo::kernels::testing
