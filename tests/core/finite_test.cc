#include "cephalo/core/finite.h"

#include <gtest/gtest.h>

#include <limits>

#include "cephalo/core/views.h"

namespace cephalo {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(FiniteTest, nan_and_both_infinities_count_in_every_floating_type) {
  const Tensor t = Tensor::of({{1, kNan, 2}, {-kInfinity, 3, kInfinity}}, DType::f64);
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    EXPECT_EQ(count_not_finite(Tensor::copy(t, dtype)), 3) << name(dtype);
  }
  EXPECT_EQ(count_not_finite(Tensor::copy(t, DType::i32)), 0);
  EXPECT_EQ(count_not_finite(Tensor::of(kNan)), 1);
  EXPECT_EQ(count_not_finite(Tensor::zeros({0, 4})), 0);
}

TEST(FiniteTest, only_what_a_view_shows_counts) {
  const Tensor t = Tensor::of({{{1, kNan}, {kNan, 2}}, {{3, 4}, {kInfinity, kNan}}});
  EXPECT_EQ(count_not_finite(t), 4);
  EXPECT_EQ(count_not_finite(t[0]), 2);
  EXPECT_EQ(count_not_finite(t.select(2, 1)), 2);
  EXPECT_EQ(count_not_finite(t.slice(1, 0, 1)), 1);
  EXPECT_EQ(count_not_finite(transpose(t, 0, 2).slice(0, 0, 1)), 2);
}

}  // namespace
}  // namespace cephalo
