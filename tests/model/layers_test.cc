// Layer norm, MLP, dropout of rows and embeddings by their definitions, at sizes that fit no
// vector.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "cephalo/core/parallel.h"
#include "cephalo/embed/embedding.h"
#include "cephalo/model/drop_rows.h"
#include "cephalo/model/layer_norm.h"
#include "cephalo/model/mlp.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::error_of;
using testing::largest_difference;
using testing::normal;
using testing::same_bits;

double gelu(double x, bool erf) {
  if (erf) return 0.5 * x * (1.0 + std::erf(x / std::sqrt(2.0)));
  return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
}

TEST(LayerNormTest, rows_have_mean_0_and_variance_1_before_weight_and_bias) {
  for (const dim_t width : {1, 3, 16, 40, 257}) {
    const Tensor x = normal({5, width}, 1);
    LayerNorm norm(width, 1e-5, DType::f32);
    norm.weight = normal({width}, 2);
    norm.bias = normal({width}, 3);
    const Tensor y = norm(x);
    double largest = 0.0;
    for (dim_t r = 0; r < 5; ++r) {
      double mean = 0.0;
      double square = 0.0;
      for (dim_t k = 0; k < width; ++k) mean += x.at({r, k}) / static_cast<double>(width);
      for (dim_t k = 0; k < width; ++k) {
        square += std::pow(x.at({r, k}) - mean, 2) / static_cast<double>(width);
      }
      for (dim_t k = 0; k < width; ++k) {
        const double expected =
            (x.at({r, k}) - mean) / std::sqrt(square + 1e-5) * norm.weight.at({k}) +
            norm.bias.at({k});
        largest = std::max(largest, std::abs(expected - y.at({r, k})));
      }
    }
    // A few roundings of numbers of about 10.
    EXPECT_LE(largest, 4e-6) << width;
  }
  const LayerNorm norm(3, 1e-5, DType::f32);
  EXPECT_NE(error_of([&] { norm(normal({2, 4}, 1)); }), "");
}

TEST(MlpTest, it_is_two_matrices_and_a_gelu) {
  for (const Activation activation : {Activation::gelu_tanh, Activation::gelu_erf}) {
    Mlp mlp(5, 7, activation, DType::f32);
    mlp.fc_weight = normal({7, 5}, 1);
    mlp.fc_bias = normal({7}, 2);
    mlp.proj_weight = normal({5, 7}, 3);
    mlp.proj_bias = normal({5}, 4);
    const Tensor x = normal({3, 5}, 5);
    const Tensor y = mlp(x);
    double largest = 0.0;
    for (dim_t r = 0; r < 3; ++r) {
      std::vector<double> active(7);
      for (dim_t m = 0; m < 7; ++m) {
        double sum = mlp.fc_bias.at({m});
        for (dim_t k = 0; k < 5; ++k) sum += x.at({r, k}) * mlp.fc_weight.at({m, k});
        active[static_cast<std::size_t>(m)] = gelu(sum, activation == Activation::gelu_erf);
      }
      for (dim_t k = 0; k < 5; ++k) {
        double sum = mlp.proj_bias.at({k});
        for (dim_t m = 0; m < 7; ++m) {
          sum += active[static_cast<std::size_t>(m)] * mlp.proj_weight.at({k, m});
        }
        largest = std::max(largest, std::abs(sum - y.at({r, k})));
      }
    }
    EXPECT_LE(largest, 1e-5);
  }
}

TEST(MlpTest, gelu_is_right_from_end_to_end) {
  // One number through matrices of one: y = gelu(x).
  for (const Activation activation : {Activation::gelu_tanh, Activation::gelu_erf}) {
    Mlp mlp(1, 1, activation, DType::f32);
    mlp.fc_weight = Tensor::of({{1}});
    mlp.proj_weight = Tensor::of({{1}});
    for (const double x : {-100.0, -20.0, -5.0, -1.0, -0.1, -1e-4, 0.0, 1e-4, 0.5, 3.0, 40.0}) {
      const double expected = gelu(x, activation == Activation::gelu_erf);
      EXPECT_NEAR(mlp(Tensor::of({{x}})).at({0, 0}), expected, 1e-6 * std::max(1.0, std::abs(x)));
    }
  }
}

TEST(DropRowsTest, a_share_is_dropped_the_rest_grows_and_threads_do_not_matter) {
  const Tensor ones = Tensor::full({97, 259}, 1.0);
  Tensor expected = Tensor::copy(ones);
  drop_rows({0.25, 9}, 3, expected);
  dim_t dropped = 0;
  for (dim_t i = 0; i < expected.numel(); ++i) {
    const float x = expected.data_as<float>()[i];
    EXPECT_TRUE(x == 0.0F || std::abs(x - 4.0F / 3.0F) < 1e-6F);
    dropped += x == 0.0F ? 1 : 0;
  }
  EXPECT_NEAR(static_cast<double>(dropped) / static_cast<double>(expected.numel()), 0.25, 0.01);
  for (const int threads : {1, 3}) {
    const UseThreads limit(threads);
    Tensor found = Tensor::copy(ones);
    drop_rows({0.25, 9}, 3, found);
    EXPECT_TRUE(same_bits(found, expected));
    found = Tensor::copy(ones);
    drop_rows({0.25, 9}, 4, found);
    EXPECT_FALSE(same_bits(found, expected));
  }
}

TEST(EmbedTest, rows_are_picked_and_gradients_go_back_to_them) {
  const Tensor token = normal({6, 70}, 1);
  const Tensor position = normal({9, 70}, 2);
  Tensor ids = Tensor::zeros({2, 3}, DType::i64);
  const std::vector<std::int64_t> written{5, 0, 5, 2, 5, 0};
  for (dim_t i = 0; i < 6; ++i) {
    ids.mutable_data_as<std::int64_t>()[i] = written[static_cast<std::size_t>(i)];
  }
  Tensor x = Tensor::empty({6, 70});
  embed_into({token, position}, ids, 4, x);
  for (dim_t row = 0; row < 6; ++row) {
    const dim_t id = written[static_cast<std::size_t>(row)];
    EXPECT_FLOAT_EQ(static_cast<float>(x.at({row, 69})),
                    static_cast<float>(token.at({id, 69})) +
                        static_cast<float>(position.at({4 + row % 3, 69})));
  }
  const Tensor dx = normal({6, 70}, 3);
  Tensor dtoken = Tensor::zeros({6, 70});
  Tensor dposition = Tensor::zeros({9, 70});
  embed_backward(ids, dx, {dtoken, dposition});
  for (const dim_t k : {0, 64, 69}) {
    EXPECT_NEAR(dtoken.at({5, k}), dx.at({0, k}) + dx.at({2, k}) + dx.at({4, k}), 1e-6);
    EXPECT_NEAR(dtoken.at({0, k}), dx.at({1, k}) + dx.at({5, k}), 1e-6);
    EXPECT_EQ(dtoken.at({1, k}), 0.0);
    EXPECT_NEAR(dposition.at({1, k}), dx.at({1, k}) + dx.at({4, k}), 1e-6);
    EXPECT_EQ(dposition.at({3, k}), 0.0);
  }
}

}  // namespace
}  // namespace cephalo
