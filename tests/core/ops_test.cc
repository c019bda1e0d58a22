#include "cephalo/core/ops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cephalo/core/parallel.h"
#include "cephalo/core/print.h"
#include "cephalo/core/random.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::error_of;
using testing::normal;
using testing::same_bits;

// a: [M, K], b: [K, N] as the definition says.
Tensor naive_product(const TensorView& a, const TensorView& b) {
  Tensor out = Tensor::empty({a.dim(0), b.dim(1)}, DType::f64);
  for (dim_t m = 0; m < a.dim(0); ++m) {
    for (dim_t n = 0; n < b.dim(1); ++n) {
      double sum = 0.0;
      for (dim_t k = 0; k < a.dim(1); ++k) sum += a.at({m, k}) * b.at({k, n});
      out.set({m, n}, sum);
    }
  }
  return out;
}

TEST(OpsTest, matmul_is_the_definition_on_any_strides_and_sizes) {
  for (const dim_t M : {1, 5, 33}) {
    for (const dim_t N : {1, 17, 300}) {
      for (const dim_t K : {0, 1, 40}) {
        const Tensor a = normal({K, M}, 1);
        const Tensor b = normal({N, K}, 2);
        const TensorView at = transpose(a, 0, 1);
        const TensorView bt = transpose(b, 0, 1);
        const Tensor expected = Tensor::copy(naive_product(at, bt), DType::f32);
        EXPECT_TRUE(same_bits(matmul(at, bt), expected)) << M << " " << N << " " << K;
      }
    }
  }
}

TEST(OpsTest, matmul_multiplies_each_matrix_of_a_batch) {
  const Tensor a = normal({2, 3, 4, 5}, 1);
  const Tensor b = normal({2, 3, 5, 6}, 2);
  const Tensor c = matmul(a, b);
  EXPECT_EQ(c.shape(), (Shape{2, 3, 4, 6}));
  const Tensor one = Tensor::copy(naive_product(a[1][2], b[1][2]), DType::f32);
  EXPECT_TRUE(same_bits(c[1][2], one));
}

TEST(OpsTest, linear_is_x_times_the_transposed_weight_plus_bias) {
  const Tensor x = normal({2, 3, 5}, 1);
  const Tensor weight = normal({4, 5}, 2);
  const Tensor bias = normal({4}, 3);
  const Tensor y = linear(x, weight, bias);
  const Tensor product = naive_product(x[1], transpose(weight, 0, 1));
  for (dim_t i = 0; i < 3; ++i) {
    for (dim_t d = 0; d < 4; ++d) {
      EXPECT_EQ(y.at({1, i, d}), static_cast<float>(product.at({i, d}) + bias.at({d})));
    }
  }
  const Tensor strided = normal({3, 2, 5}, 1);
  EXPECT_EQ(linear(transpose(strided, 0, 1), weight).at({1, 2, 3}),
            linear(strided, weight).at({2, 1, 3}));
  EXPECT_EQ(linear(x[0][0], weight).shape(), Shape{4});
}

TEST(OpsTest, results_do_not_depend_on_the_number_of_threads) {
  const Tensor x = normal({97, 257}, 1);
  const Tensor weight = normal({300, 257}, 2);
  const Tensor alone = [&] {
    const UseThreads one(1);
    return linear(x, weight);
  }();
  for (const int count : {2, 3, 7, 10000}) {
    const UseThreads limit(count);
    EXPECT_TRUE(same_bits(linear(x, weight), alone)) << count;
  }
}

TEST(OpsTest, softmax_rows_sum_to_one_and_a_hidden_row_is_zero) {
  const double hidden = -std::numeric_limits<double>::infinity();
  const Tensor t =
      Tensor::of({{0, 1, 2}, {hidden, 5, hidden}, {hidden, hidden, hidden}, {1e4, 1e4, -1e4}});
  const Tensor weights = softmax(t);
  const double sum = 1 + std::exp(1) + std::exp(2);
  EXPECT_NEAR(weights.at({0, 2}), std::exp(2) / sum, 1e-7);
  EXPECT_EQ(to_string(weights[1], 1), "[0.0, 1.0, 0.0]");
  EXPECT_EQ(to_string(weights[2], 1), "[0.0, 0.0, 0.0]");
  EXPECT_EQ(to_string(weights[3], 1), "[0.5, 0.5, 0.0]");
}

TEST(OpsTest, softmax_spreads_nan_over_its_row_only) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor weights = softmax(Tensor::of({{0, nan, 1}, {0, 0, 0}}));
  for (dim_t j = 0; j < 3; ++j) EXPECT_TRUE(std::isnan(weights.at({0, j})));
  EXPECT_NEAR(weights.at({1, 0}), 1.0 / 3, 1e-7);
}

TEST(OpsTest, triu_and_masked_fill_hide_the_future) {
  const Tensor future = triu(Tensor::full({3, 3}, 1.0), 1);
  EXPECT_EQ(to_string(future, 0), "[[0, 1, 1],\n [0, 0, 1],\n [0, 0, 0]]");
  const Tensor filled = masked_fill(Tensor::full({2, 3, 3}, 7.0), future, -1.0);
  EXPECT_EQ(to_string(filled[1], 0), "[[7, -1, -1],\n [7, 7, -1],\n [7, 7, 7]]");
}

TEST(OpsTest, dropout_draws_in_the_order_of_memory_as_pytorch_does) {
  const Tensor ones = Tensor::full({3, 4}, 1.0);
  TorchGenerator a(7);
  TorchGenerator b(7);
  const Tensor straight = dropout(ones, 0.5, a);
  const Tensor turned = dropout(transpose(ones, 0, 1), 0.5, b);
  EXPECT_TRUE(same_bits(transpose(turned, 0, 1), straight));
  TorchGenerator c(7);
  const Tensor wide = dropout(Tensor::full({9}, 1.0, DType::f64), 0.1, c);
  for (dim_t i = 0; i < 9; ++i) {
    EXPECT_TRUE(wide.at({i}) == 0.0 || wide.at({i}) == 1.0 / 0.9) << wide.at({i});
  }
}

TEST(OpsTest, integers_are_filled_without_surprise) {
  const std::int64_t large = (std::int64_t{1} << 53) + 1;  // no double
  Tensor t = Tensor::zeros({1, 2}, DType::i64);
  t.mutable_data_as<std::int64_t>()[0] = large;
  const Tensor filled =
      masked_fill(t, Tensor::of({{0, 1}}), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(filled.data_as<std::int64_t>()[0], large);
  EXPECT_EQ(filled.data_as<std::int64_t>()[1], std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(to_string(filled), "[[9007199254740993, -9223372036854775808]]");
  EXPECT_EQ(triu(t, std::numeric_limits<dim_t>::max()).data_as<std::int64_t>()[0], 0);
  EXPECT_EQ(triu(t, std::numeric_limits<dim_t>::min()).data_as<std::int64_t>()[0], large);
}

TEST(OpsTest, results_in_16_bits_are_rounded_once) {
  // The sum 1 + 2^-8 + 2^-30 lies just above a tie of bfloat16; by way of float32 it would hit it.
  const Tensor a = Tensor::of({{1, 1, 1}}, DType::bf16);
  const Tensor b = Tensor::of({{1}, {0x1p-8}, {0x1p-30}}, DType::bf16);
  EXPECT_EQ(matmul(a, b).at({0, 0}), 1.0 + 0x1p-7);
}

TEST(OpsTest, dropout_keeps_and_grows_or_drops) {
  TorchGenerator generator(123);
  const Tensor ones = Tensor::full({1000}, 1.0);
  const Tensor dropped = dropout(ones, 0.5, generator);
  int kept = 0;
  for (dim_t i = 0; i < 1000; ++i) {
    EXPECT_TRUE(dropped.at({i}) == 0.0 || dropped.at({i}) == 2.0);
    kept += dropped.at({i}) != 0.0 ? 1 : 0;
  }
  EXPECT_NEAR(kept, 500, 80);
  TorchGenerator untouched(5);
  EXPECT_TRUE(same_bits(dropout(ones, 0.0, untouched), ones));
  EXPECT_EQ(untouched.random(), TorchGenerator(5).random());
}

TEST(OpsTest, misuse_names_the_shapes) {
  const Tensor a = normal({2, 3}, 1);
  EXPECT_EQ(error_of([&] { matmul(a, a); }),
            "matmul: [2, 3] does not multiply [2, 3]; shapes must be [..., M, K] and [..., K, N]");
  EXPECT_EQ(error_of([&] {
              linear(a, normal({4, 2}, 1));
            }),
            "linear: x [2, 3] does not fit weight [4, 2] ([d_out, d_in])");
  EXPECT_EQ(error_of([&] { softmax(Tensor::zeros({2}, DType::i32)); }),
            "softmax: int32 is not a floating-point type");
  TorchGenerator generator(1);
  EXPECT_EQ(error_of([&] { dropout(a, 1.0, generator); }), "dropout: p (1) must be in [0, 1)");
}

}  // namespace
}  // namespace cephalo
