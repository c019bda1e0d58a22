#include "cephalo/view/weight_map.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/support/tiny_gpt.h"

namespace cephalo {
namespace {

using testing::tiny_options;

// Two heads on seven tokens.
class WeightMapTest : public ::testing::Test {
 protected:
  Gpt model{tiny_options()};
  Recording recording{model, {3, 1, 4, 1, 5, 9, 2}};
  const Tensor weights = Tensor::copy(recording.weights(0), DType::f64);
  const Tensor norms = Tensor::copy(recording.value_norms(0), DType::f64);
};

TEST_F(WeightMapTest, without_the_first_token_the_others_share_the_row) {
  const Tensor left = map_weights(recording, 0, {}, {.no_first = true});
  for (dim_t h = 0; h < left.dim(0); ++h) {
    for (dim_t i = 0; i < 7; ++i) {
      EXPECT_TRUE(std::isnan(left.at({h, i, 0})));
      for (dim_t j = 1; j <= i; ++j) {
        const double share = weights.at({h, i, j}) / (1.0 - weights.at({h, i, 0}));
        EXPECT_NEAR(left.at({h, i, j}), share, 1e-6);
      }
    }
  }
}

TEST_F(WeightMapTest, value_weighted_is_what_each_token_gives) {
  const Tensor moved = map_weights(recording, 0, {.heads = {1}, .rows = {6}},
                                   {.no_first = true, .value_weighted = true});
  ASSERT_EQ(moved.shape(), Shape({1, 1, 7}));
  double sum = 0.0;
  for (dim_t j = 1; j < 7; ++j) sum += weights.at({1, 6, j}) * norms.at({1, j});
  for (dim_t j = 1; j < 7; ++j) {
    EXPECT_NEAR(moved.at({0, 0, j}), weights.at({1, 6, j}) * norms.at({1, j}) / sum, 1e-6);
  }
}

TEST_F(WeightMapTest, a_small_map_has_the_largest_of_each_cell) {
  const MapOptions maps{.value_weighted = true};
  const Tensor whole = map_weights(recording, 0, {.heads = {0}}, maps);
  for (const dim_t cells : {1, 2, 3, 7, 100}) {
    const Tensor map = weight_map(recording, {0, 0}, cells, maps);
    const dim_t side = std::min<dim_t>(cells, 7);
    ASSERT_EQ(map.shape(), Shape({side, side}));
    // The cells of a plain map cover the same tokens.
    const Tensor plain = weight_map(recording, {0, 0}, cells, {});
    for (dim_t y = 0; y < side; ++y) {
      for (dim_t x = 0; x <= y; ++x) {
        double largest = 0.0;
        double weight = 0.0;
        for (dim_t i = (y * 7 + side - 1) / side; i < ((y + 1) * 7 + side - 1) / side; ++i) {
          for (dim_t j = (x * 7 + side - 1) / side; j < ((x + 1) * 7 + side - 1) / side; ++j) {
            largest = std::max(largest, whole.at({0, i, j}));
            weight = std::max(weight, weights.at({0, i, j}));
          }
        }
        EXPECT_EQ(map.at({y, x}), largest);
        EXPECT_NEAR(plain.at({y, x}), weight, 1e-7);
      }
    }
  }
}

TEST_F(WeightMapTest, a_cell_of_nothing_but_the_first_token_is_left_out) {
  const Tensor map = weight_map(recording, {0, 0}, 3, {.no_first = true});
  EXPECT_FALSE(std::isnan(map.at({0, 0})));  // tokens 0 to 2: two of them are left
  EXPECT_TRUE(std::isnan(weight_map(recording, {0, 0}, 7, {.no_first = true}).at({6, 0})));
}

TEST(MapReasonTest, only_a_plain_map_needs_none) {
  EXPECT_EQ(std::string(reason({})), "");
  EXPECT_NE(std::string(reason({.no_first = true})), "");
  EXPECT_NE(std::string(reason({.value_weighted = true})),
            std::string(reason({.no_first = true, .value_weighted = true})));
}

}  // namespace
}  // namespace cephalo
