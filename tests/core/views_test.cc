#include "cephalo/core/views.h"

#include <gtest/gtest.h>

#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::error_of;
using testing::same_bits;

Tensor counting(const Shape& shape) {
  Tensor t = Tensor::empty(shape);
  for (dim_t k = 0; k < t.numel(); ++k) t.mutable_data_as<float>()[k] = static_cast<float>(k);
  return t;
}

TEST(ViewsTest, view_changes_the_shape_and_no_memory) {
  const Tensor t = counting({2, 6});
  const TensorView v = view(t, {2, 3, 2});
  EXPECT_EQ(v.data(), t.data());
  EXPECT_EQ(v.strides(), (Strides{6, 2, 1}));
  EXPECT_EQ(v.at({1, 2, 0}), 10.0);
  EXPECT_EQ(view(t, {-1}).shape(), Shape{12});
  EXPECT_EQ(view(t, {3, -1}).shape(), (Shape{3, 4}));
}

TEST(ViewsTest, view_of_a_transposed_tensor_says_to_call_contiguous) {
  const Tensor t = counting({2, 3, 4});
  const TensorView turned = transpose(t, 1, 2);
  EXPECT_EQ(error_of([&] {
              view(turned, {2, 12});
            }),
            "view: [2, 4, 3] with strides [12, 1, 4] cannot be seen as [2, 12] without moving "
            "memory; call contiguous first, or use reshape");
  const auto dense = contiguous(turned);
  EXPECT_TRUE(dense.copied());
  EXPECT_EQ(view(dense, {2, 12}).at({0, 1}), 4.0);
}

TEST(ViewsTest, view_of_strided_memory_works_where_strides_allow) {
  const Tensor t = counting({4, 6});
  const TensorView left = t.slice(1, 0, 4);  // strides [6, 1]
  EXPECT_EQ(view(left, {4, 2, 2}).at({3, 1, 1}), 21.0);
  EXPECT_EQ(view(left, {2, 2, 4}).at({1, 1, 3}), 21.0);
  EXPECT_NE(error_of([&] { view(left, {16}); }), "");
  EXPECT_EQ(view(left, {1, 4, 1, 4, 1}).at({0, 2, 0, 1, 0}), 13.0);
}

TEST(ViewsTest, splitting_and_merging_agree_with_a_copy_for_every_permutation) {
  const Tensor t = counting({2, 3, 4});
  const Dims orders[] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  const Shape shapes[] = {{24}, {2, 12}, {6, 4}, {3, 8}, {4, 3, 2}, {2, 2, 2, 3}, {1, 24, 1}};
  for (const Dims& order : orders) {
    const TensorView p = permute(t, order);
    const Tensor copy = Tensor::copy(p);
    for (const Shape& shape : shapes) {
      const auto reshaped = reshape(p, shape);
      EXPECT_TRUE(same_bits(reshaped.view(), view(copy, shape)));
      if (error_of([&] { view(p, shape); }).empty()) {
        EXPECT_FALSE(reshaped.copied());
        EXPECT_TRUE(same_bits(view(p, shape), view(copy, shape)));
      } else {
        EXPECT_TRUE(reshaped.copied());
      }
    }
  }
}

TEST(ViewsTest, chunk_cuts_as_pytorch_does) {
  const Tensor t = counting({2, 7});
  const auto parts = chunk(t, 3, 1);
  ASSERT_EQ(parts.size(), 3U);
  EXPECT_EQ(parts[0].shape(), (Shape{2, 3}));
  EXPECT_EQ(parts[2].shape(), (Shape{2, 1}));
  EXPECT_EQ(parts[1].at({1, 0}), 10.0);
}

TEST(ViewsTest, contiguous_of_dense_memory_copies_nothing) {
  const Tensor t = counting({2, 3});
  EXPECT_FALSE(contiguous(t).copied());
  EXPECT_FALSE(contiguous(view(t, {3, 2})).copied());
  EXPECT_TRUE(contiguous(transpose(t, 0, 1)).copied());
}

TEST(ViewsTest, misuse_names_the_numbers) {
  const Tensor t = counting({2, 3});
  EXPECT_EQ(error_of([&] {
              view(t, {4, 2});
            }),
            "view: shape [4, 2] does not hold the 6 elements of [2, 3]");
  EXPECT_EQ(error_of([&] { view(t, {-1, -1}); }), "view: only one dimension of [-1, -1] may be -1");
  EXPECT_EQ(error_of([&] { transpose(t, 0, 2); }),
            "transpose: axis 2 does not exist in shape [2, 3]");
  EXPECT_EQ(error_of([&] { permute(t, {0, 0}); }), "permute: axis 0 appears twice in [0, 0]");
  EXPECT_EQ(error_of([&] { chunk(t, 0, 0); }), "chunk: count (0) must be > 0");
  EXPECT_EQ(error_of([&] {
              broadcast_to(t, {2, 4});
            }),
            "broadcast_to: [2, 3] does not broadcast to [2, 4]");
}

}  // namespace
}  // namespace cephalo
