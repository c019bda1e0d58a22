// Packing moves every element of every storage type to its place, fills up with zeros, and touches
// nothing else.
#include <algorithm>

#include "tests/kernels/kernel_test.h"

namespace cephalo::kernels::testing {
namespace {

template <typename T>
using PackKernelsTest = KernelTest<T>;
TYPED_TEST_SUITE(PackKernelsTest, NumberTypes);

// Rows in every storage type, dense and not: each number of rows up to `most_rows` with each width
// up to `most_dim`, and widths around the 256 elements that are widened at a time.
template <typename Check>
void for_all_rows(dim_t most_rows, dim_t most_dim, const Check& check) {
  Numbers numbers(5);
  std::vector<dim_t> dims;
  for (dim_t dim = 1; dim <= most_dim; ++dim) dims.push_back(dim);
  for (const dim_t dim : {255, 256, 259, 513}) dims.push_back(dim);
  for (const DType dtype : kStorageTypes) {
    for (const dim_t stride : {1, 3}) {
      for (const dim_t dim : dims) {
        // Long rows, and most pairs of sizes, need not meet in every type.
        const bool thorough = dim <= most_dim && dim % 3 != 2;
        for (dim_t count = thorough ? 1 : most_rows; count <= most_rows; ++count) {
          check(StoredRows(count, dim, stride, dtype, numbers));
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

template <typename T>
T element_of(const StoredRows& from, dim_t r, dim_t k) {
  return r < from.rows().count && k < from.rows().dim ? static_cast<T>(from.at(r, k)) : T(0);
}

TYPED_TEST(PackKernelsTest, pack_broadcast_lays_rows_side_by_side) {
  using T = TypeParam;
  const dim_t rows = this->rows();
  for_all_rows(2 * rows + 1, this->most(), [&](const StoredRows& from) {
    const auto [address, count, dim, stride, dtype] = from.rows();
    Guarded<T> to(round_up(count, rows) * dim);
    this->attend().pack_broadcast(from.rows(), to.data());
    ASSERT_TRUE(to.fences_stand());
    for (dim_t r = 0; r < round_up(count, rows); ++r) {
      for (dim_t k = 0; k < dim; ++k) {
        ASSERT_TRUE(
            same_number(to[(r / rows * dim + k) * rows + r % rows], element_of<T>(from, r, k)))
            << name(dtype) << " row " << r << " of " << count << ", " << k << " of " << dim;
      }
    }
  });
}

TYPED_TEST(PackKernelsTest, pack_lanes_puts_rows_into_lanes_times_scale) {
  using T = TypeParam;
  const T scale = static_cast<T>(0.7071067811865476);
  for (int columns = 1; columns <= kMaxColumns; ++columns) {
    const dim_t width = columns * this->lanes();
    for_all_rows(std::min(width, this->most()), 9, [&](const StoredRows& from) {
      const auto [address, count, dim, stride, dtype] = from.rows();
      Guarded<T> to(dim * width);
      this->attend().pack_lanes(from.rows(), scale, width, to.data());
      ASSERT_TRUE(to.fences_stand());
      for (dim_t k = 0; k < dim; ++k) {
        for (dim_t x = 0; x < width; ++x) {
          ASSERT_TRUE(same_number(to[k * width + x], element_of<T>(from, x, k) * scale))
              << name(dtype) << " lane " << x << " of " << width << ", " << k << " of " << dim;
        }
      }
    });
  }
}

TYPED_TEST(PackKernelsTest, pack_values_cuts_rows_into_groups_of_columns) {
  using T = TypeParam;
  const dim_t rows = this->rows();
  for_all_rows(rows + 1, this->most(), [&](const StoredRows& from) {
    const auto [address, count, dim, stride, dtype] = from.rows();
    const dim_t groups = round_up(dim, rows) / rows;
    const dim_t value_stride = count * rows + 5;
    Guarded<T> to(groups * value_stride);
    ASSERT_TRUE(this->attend().pack_values(from.rows(), value_stride, to.data()));
    ASSERT_TRUE(to.fences_stand());
    for (dim_t g = 0; g < groups; ++g) {
      for (dim_t key = 0; key < count; ++key) {
        for (dim_t r = 0; r < rows; ++r) {
          ASSERT_TRUE(same_number(to[g * value_stride + key * rows + r],
                                  element_of<T>(from, key, g * rows + r)))
              << name(dtype) << " key " << key << " of " << count << ", " << g * rows + r;
        }
      }
      ASSERT_TRUE(to.untouched(g * value_stride + count * rows, (g + 1) * value_stride));
    }
  });
}

TYPED_TEST(PackKernelsTest, pack_slices_cuts_rows_into_slices_of_any_width) {
  using T = TypeParam;
  std::vector<dim_t> widths{this->rows()};
  for (int columns = 1; columns <= kMaxColumns; ++columns)
    widths.push_back(columns * this->lanes());
  for (const dim_t width : widths) {
    for_all_rows(6, this->most(), [&](const StoredRows& from) {
      const auto [address, count, dim, stride, dtype] = from.rows();
      const dim_t slices = round_up(dim, width) / width;
      const dim_t slice_stride = count * width + 3;
      Guarded<T> to(slices * slice_stride);
      ASSERT_TRUE(this->attend().pack_slices(from.rows(), width, slice_stride, to.data()));
      ASSERT_TRUE(to.fences_stand());
      for (dim_t s = 0; s < slices; ++s) {
        for (dim_t r = 0; r < count; ++r) {
          for (dim_t k = 0; k < width; ++k) {
            ASSERT_TRUE(same_number(to[s * slice_stride + r * width + k],
                                    element_of<T>(from, r, s * width + k)))
                << name(dtype) << " row " << r << " of " << count << ", " << s * width + k;
          }
        }
        ASSERT_TRUE(to.untouched(s * slice_stride + count * width, (s + 1) * slice_stride));
      }
    });
  }
}

TYPED_TEST(PackKernelsTest, copy_rows_fills_rows_up_with_zeros) {
  using T = TypeParam;
  for_all_rows(3, this->most(), [&](const StoredRows& from) {
    const auto [address, count, dim, stride, dtype] = from.rows();
    for (const dim_t to_stride : {dim, round_up(dim, this->lanes()), dim + 5}) {
      Guarded<T> to(count * to_stride);
      ASSERT_TRUE(this->attend().copy_rows(from.rows(), to_stride, to.data()));
      ASSERT_TRUE(to.fences_stand());
      for (dim_t r = 0; r < count; ++r) {
        for (dim_t k = 0; k < to_stride; ++k) {
          ASSERT_TRUE(same_number(to[r * to_stride + k], element_of<T>(from, r, k)))
              << name(dtype) << " row " << r << ", " << k << " of " << dim;
        }
      }
    }
  });
}

// Wherever it is, one number that is not finite is found; and it arrives.
TYPED_TEST(PackKernelsTest, packing_tells_of_a_number_that_is_not_finite) {
  using T = TypeParam;
  Numbers numbers(6);
  const dim_t rows = this->rows();
  const dim_t dim = this->most();
  for (const DType dtype : kStorageTypes) {
    for (const double wrong : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
      for (dim_t at = 0; at < 5 * dim; ++at) {
        StoredRows from(5, dim, 1, dtype, numbers);
        from.set(at / dim, at % dim, wrong);
        Guarded<T> to(round_up(dim, std::max(rows, this->lanes())) * 5);
        EXPECT_FALSE(this->attend().pack_values(from.rows(), 5 * rows, to.data())) << at;
        const T arrived = to[at % dim / rows * 5 * rows + at / dim * rows + at % dim % rows];
        EXPECT_TRUE(same_number(arrived, static_cast<T>(wrong))) << at;
        for (const dim_t width : {rows, this->lanes()}) {
          EXPECT_FALSE(this->attend().pack_slices(from.rows(), width, 5 * width, to.data())) << at;
        }
        EXPECT_FALSE(this->attend().copy_rows(from.rows(), dim, to.data())) << at;
      }
    }
  }
}

// What a result of T is in each storage type.
template <typename T>
double stored_as(T value, DType dtype) {
  const auto single = static_cast<float>(value);
  return dtype == DType::f64    ? double{value}
         : dtype == DType::f32  ? double{single}
         : dtype == DType::bf16 ? double{to_float(to_bfloat16(single))}
                                : double{to_float(to_float16(single))};
}

TYPED_TEST(PackKernelsTest, unpack_lanes_writes_rows_of_every_type_and_nothing_between_them) {
  using T = TypeParam;
  Numbers numbers(7);
  const dim_t width = 2 * this->lanes();
  for (const DType dtype : kStorageTypes) {
    for (const dim_t stride : {1, 3}) {
      for (dim_t dim = 1; dim <= 9; ++dim) {
        for (dim_t count = 1; count <= width; ++count) {
          const Guarded<T> tile(dim * width, numbers);
          const Guarded<T> factor(width, numbers, 0.5, 2.0);
          StoredRows to(count, dim, stride, dtype, numbers);
          // StoredRows lie in reverse order: a negative distance apart.
          const dim_t row_stride = -dim * stride;
          this->attend().unpack_lanes(
              tile.data(), width, factor.data(),
              {const_cast<void*>(to.rows().address[0]), count, dim, row_stride, stride, dtype});
          ASSERT_TRUE(to.gaps_untouched());
          for (dim_t x = 0; x < count; ++x) {
            for (dim_t k = 0; k < dim; ++k) {
              ASSERT_EQ(to.at(x, k), stored_as(tile[k * width + x] * factor[x], dtype))
                  << name(dtype) << " lane " << x << " of " << count << ", " << k << " of " << dim;
            }
          }
        }
      }
    }
  }
}

TYPED_TEST(PackKernelsTest, row_products_are_off_by_their_roundings_at_most) {
  using T = TypeParam;
  Numbers numbers(9);
  for_all_rows(3, this->most(), [&](const StoredRows& a) {
    const auto [address, count, dim, stride, dtype] = a.rows();
    const StoredRows b(count, dim, 4 - stride, DType::f32, numbers);
    Guarded<T> products(count);
    this->attend().row_products(a.rows(), b.rows(), products.data());
    ASSERT_TRUE(products.fences_stand());
    for (dim_t r = 0; r < count; ++r) {
      long double sum = 0.0L;
      double magnitude = 0.0;
      for (dim_t k = 0; k < dim; ++k) {
        const long double term =
            static_cast<long double>(element_of<T>(a, r, k)) * element_of<T>(b, r, k);
        sum += term;
        magnitude += static_cast<double>(std::abs(term));
      }
      ASSERT_LE(std::abs(static_cast<double>(products[r] - sum)),
                magnitude * this->kEpsilon * 0.5 * static_cast<double>(dim + 1));
    }
  });
}

}  // namespace
}  // namespace cephalo::kernels::testing
