#include "cephalo/core/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

namespace cephalo {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Rounding by definition: of the two 16-bit neighbours the nearer, of two equally near the even.
template <typename Half>
void expect_nearest_even(float value, Half found) {
  const float result = to_float(found);
  if (std::isnan(value)) {
    EXPECT_TRUE(std::isnan(result));
    return;
  }
  if (std::isinf(result)) return;  // checked by the overflow test
  const double error = std::abs(static_cast<double>(result) - value);
  for (const int step : {-1, 1}) {
    Half neighbour{static_cast<std::uint16_t>(found.bits + step)};
    if ((neighbour.bits ^ found.bits) & 0x8000U) continue;  // past zero
    const float other = to_float(neighbour);
    if (!std::isfinite(other)) continue;
    const double other_error = std::abs(static_cast<double>(other) - value);
    EXPECT_LE(error, other_error) << value;
    if (error == other_error) {
      EXPECT_EQ(found.bits & 1U, 0U) << value;
    }
  }
}

TEST(DTypeTest, every_16_bit_number_survives_widening_and_narrowing) {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const BFloat16 b{static_cast<std::uint16_t>(bits)};
    const Float16 h{static_cast<std::uint16_t>(bits)};
    if (std::isnan(to_float(b))) {
      EXPECT_TRUE(std::isnan(to_float(to_bfloat16(to_float(b)))));
    } else {
      EXPECT_EQ(to_bfloat16(to_float(b)).bits, bits);
    }
    if (std::isnan(to_float(h))) {
      EXPECT_TRUE(std::isnan(to_float(to_float16(to_float(h)))));
    } else {
      EXPECT_EQ(to_float16(to_float(h)).bits, bits);
    }
  }
}

TEST(DTypeTest, known_float16_values) {
  EXPECT_EQ(to_float(Float16{0x3C00}), 1.0F);
  EXPECT_EQ(to_float(Float16{0x0001}), 0x1p-24F);
  EXPECT_EQ(to_float(Float16{0x0400}), 0x1p-14F);
  EXPECT_EQ(to_float(Float16{0x7BFF}), 65504.0F);
  EXPECT_EQ(to_float(Float16{0x7C00}), kInfinity);
  EXPECT_EQ(to_float(Float16{0xC000}), -2.0F);
  EXPECT_EQ(to_float(BFloat16{0x3F80}), 1.0F);
}

TEST(DTypeTest, narrowing_rounds_to_nearest_even) {
  std::mt19937 random(1);
  for (int k = 0; k < 200000; ++k) {
    const float any = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    expect_nearest_even(any, to_bfloat16(any));
    const float small = std::ldexp(static_cast<float>(random()) * 0x1p-32F - 0.5F,
                                   static_cast<int>(random() % 45) - 28);
    expect_nearest_even(small, to_float16(small));
    expect_nearest_even(small, to_bfloat16(small));
  }
  // Every tie between neighbouring float16 numbers.
  for (unsigned bits = 0; bits < 0x7BFF; ++bits) {
    const float low = to_float(Float16{static_cast<std::uint16_t>(bits)});
    const float high = to_float(Float16{static_cast<std::uint16_t>(bits + 1)});
    const float middle = (low + high) / 2;
    EXPECT_EQ(to_float16(middle).bits & 1U, 0U);
    EXPECT_EQ(to_float16(std::nextafter(middle, kInfinity)).bits, bits + 1);
    EXPECT_EQ(to_float16(std::nextafter(middle, -kInfinity)).bits, bits);
  }
}

TEST(DTypeTest, too_large_becomes_infinity) {
  EXPECT_EQ(to_float16(65519.0F).bits, 0x7BFF);
  EXPECT_EQ(to_float16(65520.0F).bits, 0x7C00);
  EXPECT_EQ(to_float16(-1e30F).bits, 0xFC00);
  EXPECT_EQ(to_float16(kInfinity).bits, 0x7C00);
  EXPECT_EQ(to_bfloat16(std::numeric_limits<float>::max()).bits, 0x7F80);
  EXPECT_TRUE(std::isnan(to_float(to_bfloat16(std::bit_cast<float>(0x7F800001U)))));
  EXPECT_TRUE(std::isnan(to_float(to_float16(std::bit_cast<float>(0x7F800001U)))));
}

}  // namespace
}  // namespace cephalo
