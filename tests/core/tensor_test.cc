#include "cephalo/core/tensor.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "cephalo/core/error.h"
#include "cephalo/core/print.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::error_of;

TEST(TensorTest, owners_are_64_byte_aligned) {
  for (const dim_t size : {1, 3, 17, 1000}) {
    const Tensor t = Tensor::empty({size});
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(t.data()) % 64, 0U);
  }
}

TEST(TensorTest, elements_between_two_addresses_of_their_type_are_refused) {
  alignas(8) const std::byte memory[32] = {};
  EXPECT_EQ(error_of([&] { TensorView(memory + 8, DType::f64, {3}); }), "");
  EXPECT_EQ(error_of([&] { TensorView(memory + 3, DType::u8, {3}); }), "");
  EXPECT_EQ(error_of([&] { TensorView(memory + 4, DType::f64, {3}); }),
            "tensor: float64 elements must lie at a multiple of 8 bytes; copy them");
  EXPECT_EQ(error_of([&] { TensorView(memory + 1, DType::bf16, {3}); }),
            "tensor: bfloat16 elements must lie at a multiple of 2 bytes; copy them");
}

TEST(TensorTest, numbers_written_out_land_in_row_major_order) {
  const Tensor t = Tensor::of({{{1, 2}, {3, 4}}, {{5, 6}, {7, 8}}});
  EXPECT_EQ(t.shape(), (Shape{2, 2, 2}));
  for (dim_t k = 0; k < 8; ++k) EXPECT_EQ(t.data_as<float>()[k], static_cast<float>(k + 1));
  EXPECT_EQ(t.at({1, 0, 1}), 6.0);
  EXPECT_EQ(Tensor::of({{1}, {2}}).shape(), (Shape{2, 1}));
  EXPECT_EQ(Tensor::of({{1, 2}}).shape(), (Shape{1, 2}));
  EXPECT_EQ(Tensor::of(3).shape(), Shape{});
  EXPECT_EQ(error_of([] {
              Tensor::of({{1, 2}, {3}});
            }),
            "Tensor::of: rows differ in length (2 and 1)");
  EXPECT_EQ(to_string(t[0]), "[[1.0000, 2.0000],\n [3.0000, 4.0000]]");
}

TEST(TensorTest, a_moved_from_tensor_is_empty) {
  Tensor a = Tensor::of({1, 2, 3});
  const Tensor b = std::move(a);
  EXPECT_EQ(b.at({2}), 3.0);
  EXPECT_EQ(a.numel(), 0);  // NOLINT: looking at it is the point
}

TEST(TensorTest, slices_and_selections_share_memory) {
  Tensor t = Tensor::of({{1, 2, 3}, {4, 5, 6}});
  t.mutable_view().select(1, 1).fill(9);
  EXPECT_EQ(t.at({0, 1}), 9.0);
  EXPECT_EQ(t.at({1, 1}), 9.0);
  EXPECT_EQ(t.slice(1, 2, 3).at({1, 0}), 6.0);
  EXPECT_EQ(t.select(-1, 0).at({1}), 4.0);
}

TEST(TensorTest, copies_convert_between_all_element_types) {
  const Tensor source = Tensor::of({0, 1, 2, 5});
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i64, DType::i32,
                            DType::i16, DType::i8, DType::u8}) {
    const Tensor copy = Tensor::copy(source, dtype);
    EXPECT_EQ(copy.dtype(), dtype);
    EXPECT_EQ(copy.at({3}), 5.0) << name(dtype);
    EXPECT_EQ(copy.bytes(), 4 * item_size(dtype));
  }
  EXPECT_EQ(Tensor::copy(source, DType::boolean).at({3}), 1.0);
}

TEST(TensorTest, a_copy_of_negative_strides_reverses) {
  const Tensor t = Tensor::of({1, 2, 3});
  const TensorView backwards(t.data_as<float>() + 2, DType::f32, {3}, {-1});
  EXPECT_EQ(to_string(Tensor::copy(backwards), 0), "[3, 2, 1]");
}

// Sizes that no square divides.
TEST(TensorTest, a_copy_into_columns_is_the_transpose_in_every_type) {
  Tensor source = Tensor::empty({2, 70, 45}, DType::f64);
  for (dim_t k = 0; k < source.numel(); ++k) {
    source.mutable_data_as<double>()[k] = static_cast<double>(k * 7 % 127) - 60.0;
  }
  for (const DType from : {DType::bf16, DType::f16, DType::f32, DType::i64}) {
    for (const DType to : {DType::f32, DType::bf16, DType::f64, DType::i8}) {
      const Tensor rows = Tensor::copy(source, from);
      Tensor columns = Tensor::empty({2, 45, 70}, to);
      const MutableTensorView target(columns.mutable_view().mutable_data(), to, {2, 70, 45},
                                     {45 * 70, 1, 70});
      target.copy_from(rows);
      for (dim_t n = 0; n < 2; ++n) {
        for (dim_t i = 0; i < 70; ++i) {
          for (dim_t j = 0; j < 45; ++j) {
            ASSERT_EQ(columns.at({n, j, i}), source.at({n, i, j})) << name(from) << name(to);
          }
        }
      }
    }
  }
}

TEST(TensorTest, misuse_names_the_numbers) {
  Tensor t = Tensor::of({{1, 2}, {3, 4}});
  EXPECT_EQ(error_of([&] { t.at({2, 0}); }), "tensor: index [2, 0] outside shape [2, 2]");
  EXPECT_EQ(error_of([&] { t.data_as<double>(); }), "tensor: elements are float32, not float64");
  EXPECT_EQ(error_of([&] { t.slice(0, 1, 3); }), "slice: [1, 3) of axis 0 of [2, 2]");
  EXPECT_EQ(error_of([&] { t.mutable_view().copy_from(Tensor::of({1})); }),
            "copy: shape [1] into shape [2, 2]");
  EXPECT_EQ(error_of([&] { Tensor::empty({-1}); }), "shape: negative dimension in [-1]");
}

TEST(TensorTest, sizes_that_overflow_or_exceed_the_machine_are_refused) {
  EXPECT_EQ(error_of([] {
              Tensor::empty({dim_t{1} << 40, dim_t{1} << 40});
            }),
            "shape: size of [1099511627776, 1099511627776] overflows");
  EXPECT_NE(error_of([] { Tensor::empty({dim_t{1} << 62}); }).find("size overflows"),
            std::string::npos);
  try {
    Tensor::empty({dim_t{1} << 50});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::memory);
  }
}

}  // namespace
}  // namespace cephalo
