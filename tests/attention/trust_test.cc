// What bad calls get, one test for each row of the list of misuse (A1 to A10).
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <stdexcept>

#include "cephalo/core/error.h"
#include "cephalo/learn/ladder.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::all_finite;
using testing::all_zero;
using testing::error_of;
using testing::normal;
using testing::same_bits;

std::string error_of_layer(const MultiHeadAttentionOptions& options) {
  return error_of([&] { MultiHeadAttention layer(options); });
}

Error::Kind kind_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.kind();
  }
  throw std::runtime_error("nothing was thrown");
}

TEST(TrustTest, A1_sizes_of_a_layer) {
  EXPECT_EQ(
      error_of_layer({.d_in = 64, .d_out = 256, .num_heads = 12}),
      "MultiHeadAttention: d_out (256) must be divisible by num_heads (12); 8 or 16 heads fit");
  EXPECT_EQ(error_of_layer({.d_in = 64, .d_out = 2, .num_heads = 3}),
            "MultiHeadAttention: d_out (2) must be divisible by num_heads (3); 2 heads fit");
  EXPECT_EQ(error_of_layer({.d_in = 64, .d_out = 64, .num_heads = 0}),
            "MultiHeadAttention: num_heads (0) must be > 0");
  EXPECT_EQ(error_of_layer({.d_in = 64, .d_out = 64, .num_heads = -2}),
            "MultiHeadAttention: num_heads (-2) must be > 0");
  EXPECT_EQ(error_of_layer({.d_in = 0, .d_out = 64}), "MultiHeadAttention: d_in (0) must be > 0");
  EXPECT_EQ(error_of_layer({.d_in = 8, .d_out = 8, .num_heads = 4, .num_kv_heads = 3}),
            "MultiHeadAttention: num_heads (4) must be a multiple of num_kv_heads (3)");
  EXPECT_EQ(error_of_layer({.d_in = 8, .d_out = 6, .num_heads = 2, .rotary = Rotary{}}),
            "MultiHeadAttention: rotary needs an even head_dim, got 3");
  EXPECT_EQ(
      error_of([] { EasyMultiHeadAttention easy({.d_model = 10, .num_heads = 4}); }),
      "EasyMultiHeadAttention: d_model (10) must be divisible by num_heads (4); 2 or 5 heads fit");
  EXPECT_EQ(error_of([] { HeadWrapper wrapper({.d_in = 4, .d_out = 2, .num_heads = 0}); }),
            "HeadWrapper: num_heads (0) must be > 0");
  // No search for a number of heads that fits takes long, and no width wraps around.
  EXPECT_EQ(error_of_layer({.d_in = 4, .d_out = 256, .num_heads = dim_t{1} << 40}),
            "MultiHeadAttention: d_out (256) must be divisible by num_heads (1099511627776); 256 "
            "heads fit");
  EXPECT_NE(error_of_layer({.d_in = 4, .d_out = 8, .num_heads = 8, .v_dim = dim_t{1} << 61})
                .find("size overflows"),
            std::string::npos);
  EXPECT_EQ(error_of_layer({.d_in = 4, .d_out = 4, .rotary = Rotary{.base = 0.0}}),
            "MultiHeadAttention: the base of rotary (0) must be > 0 and finite");
}

TEST(TrustTest, A2_shapes_and_types_that_do_not_fit) {
  MultiHeadAttention layer({.d_in = 6, .d_out = 8, .num_heads = 2, .seed = 1});
  EXPECT_EQ(error_of([&] {
              layer(normal({2, 3, 5}, 1));
            }),
            "MultiHeadAttention: the last dimension of x [2, 3, 5] must be d_in (6)");
  EXPECT_EQ(error_of([&] {
              layer(normal({2, 3, 4, 6}, 1));
            }),
            "MultiHeadAttention: x [2, 3, 4, 6] must be [batch, tokens, 6] or [tokens, 6]");
  EXPECT_EQ(error_of([&] { layer(normal({6}, 1)); }),
            "MultiHeadAttention: x [6] must be [batch, tokens, 6] or [tokens, 6]");
  const Tensor q = normal({2, 4, 3, 8}, 1);
  const auto attended = [&](const TensorView& a, const TensorView& k, const TensorView& v) {
    return error_of([&] { attend(a, k, v); });
  };
  EXPECT_EQ(attended(q, normal({1, 4, 3, 8}, 1), q),
            "attend: batch of q (2), k (1) and v (2) differ");
  EXPECT_EQ(attended(q, q, normal({2, 4, 5, 8}, 1)),
            "attend: kv_tokens of k (3) and v (5) differ: k [2, 4, 3, 8], v [2, 4, 5, 8]");
  EXPECT_EQ(attended(q, normal({2, 4, 3, 7}, 1), q),
            "attend: head_dim of q (8) and k (7) differ: q [2, 4, 3, 8], k [2, 4, 3, 7]");
  EXPECT_EQ(attended(q, normal({2, 3, 3, 8}, 1), normal({2, 3, 3, 8}, 1)),
            "attend: num_heads (4) must be a multiple of num_kv_heads (3)");
  EXPECT_EQ(attended(q, q, normal({2, 2, 3, 8}, 1)), "attend: k has 4 heads but v has 2");
  EXPECT_EQ(attended(q, q[0], q[0]),
            "attend: q [2, 4, 3, 8], k [4, 3, 8] and v [4, 3, 8] must have the same rank");
  EXPECT_EQ(attended(normal({8}, 1), normal({8}, 1), normal({8}, 1)),
            "attend: q [8] must be [tokens, dim], [heads, tokens, dim] or [batch, heads, tokens, "
            "dim]");
  EXPECT_EQ(attended(Tensor::empty({3, 0}), Tensor::empty({3, 0}), normal({3, 8}, 1)),
            "attend: head_dim is 0 in q [3, 0]");
  EXPECT_EQ(attended(Tensor::empty({0, 3, 8}), Tensor::empty({0, 3, 8}), Tensor::empty({0, 3, 8})),
            "attend: num_heads (0) and num_kv_heads (0) must be > 0");
  const Tensor half = Tensor::copy(q, DType::f16);
  EXPECT_EQ(attended(q, q, half), "attend: k is float32 but v is float16; they must be the same");
  EXPECT_EQ(
      attended(half, q, q),
      "attend: q is float16 but k and v are float32; they must be the same, or q float32 over "
      "16-bit k and v");
  EXPECT_EQ(attended(Tensor::copy(q, DType::i32), q, q),
            "attend: q is int32, a floating-point type is needed");
  EXPECT_EQ(kind_of([&] { attend(half, q, q); }), Error::Kind::type);
}

TEST(TrustTest, A3_more_tokens_than_context_length) {
  MultiHeadAttention layer({.d_in = 4, .d_out = 4, .context_length = 5, .seed = 1});
  EXPECT_EQ(error_of([&] {
              layer(normal({1, 6, 4}, 1));
            }),
            "MultiHeadAttention: tokens (6) exceed context_length (5)");
  EXPECT_EQ(layer(normal({1, 5, 4}, 1)).shape(), (Shape{1, 5, 4}));  // still usable
}

TEST(TrustTest, A4_dropout_outside_its_range) {
  for (const double p : {-0.1, 1.0, 1.1, std::nan("")}) {
    EXPECT_NE(error_of_layer({.d_in = 4, .d_out = 4, .dropout = p}).find("must be in [0, 1)"),
              std::string::npos);
    const Tensor q = normal({3, 4}, 1);
    EXPECT_NE(error_of([&] { attend(q, q, q, {}, {.dropout = p}); }).find("must be in [0, 1)"),
              std::string::npos);
  }
  const Tensor q = normal({3, 4}, 1);
  EXPECT_EQ(error_of([&] {
              attend(q, q, q, {}, {.dropout = 0.1, .dropout_stream = DropoutStream::torch});
            }),
            "attend: the torch dropout streams draw from a generator; pass one, or use the counter "
            "stream");
}

TEST(TrustTest, A5_empty_sequences_and_batches) {
  MultiHeadAttention layer({.d_in = 4, .d_out = 6, .num_heads = 2, .seed = 1});
  EXPECT_EQ(layer(Tensor::empty({2, 0, 4})).shape(), (Shape{2, 0, 6}));
  EXPECT_EQ(layer(Tensor::empty({0, 3, 4})).shape(), (Shape{0, 3, 6}));
  const Mask no_lengths = lengths({});
  EXPECT_EQ(layer(Tensor::empty({0, 3, 4}), {.mask = no_lengths}).shape(), (Shape{0, 3, 6}));
  EXPECT_EQ(Tensor::empty({0, dim_t{1} << 40, dim_t{1} << 40}).numel(), 0);
  EXPECT_EQ(layer(Tensor::empty({0, 4})).shape(), (Shape{0, 6}));
  EXPECT_EQ(simple_attention(Tensor::empty({0, 4})).context.shape(), (Shape{0, 4}));
}

TEST(TrustTest, A6_rows_that_see_nothing) {
  const double hidden = -std::numeric_limits<double>::infinity();
  const Tensor q = normal({1, 1, 3, 4}, 1);
  Tensor flags = Tensor::full({3, 3}, 1, DType::boolean);
  Tensor numbers = Tensor::zeros({3, 3});
  flags.mutable_view()[1].fill(0);
  numbers.mutable_view()[1].fill(hidden);
  const Mask padded = causal() & lengths({0});
  for (const Mask& mask : {keep(flags), bias(numbers), padded}) {
    const AttendResult r = attend(q, q, q, mask, {.return_weights = true});
    EXPECT_TRUE(all_zero(r.context[0][0][1])) << mask.to_string();
    EXPECT_TRUE(all_zero(r.weights[0][0][1])) << mask.to_string();
    EXPECT_TRUE(all_finite(r.context)) << mask.to_string();
  }
}

TEST(TrustTest, A7_nan_and_infinity_reach_only_who_attends_to_them) {
  for (const double poison : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    const Tensor q = normal({1, 1, 4, 4}, 1);
    Tensor v = normal({1, 1, 4, 4}, 2);
    const Tensor clean = attend(q, q, v, causal()).context;
    v.mutable_view()[0][0][2].fill(poison);
    const Tensor context = attend(q, q, v, causal()).context;
    EXPECT_TRUE(same_bits(context[0][0].slice(0, 0, 2), clean[0][0].slice(0, 0, 2)));
    EXPECT_FALSE(all_finite(context[0][0][2]));
    EXPECT_FALSE(all_finite(context[0][0][3]));
  }
}

TEST(TrustTest, A8_extreme_scores) {
  const double hidden = -std::numeric_limits<double>::infinity();
  const auto weights_of = [](const TensorView& scores) {
    const Tensor q = Tensor::zeros({scores.dim(0), 1});
    const Tensor k = Tensor::zeros({scores.dim(1), 1});
    return attend(q, k, k, bias(scores), {.return_weights = true}).weights;
  };
  const Tensor weights = weights_of(
      Tensor::of({{1e4, -1e4, 1e4}, {-1e4, -1e4, -1e4}, {hidden, 3, hidden}, {1e-42, 0, -1e-42}}));
  for (dim_t i = 0; i < 4; ++i) {
    double sum = 0.0;
    for (dim_t j = 0; j < 3; ++j) sum += weights.at({i, j});
    EXPECT_NEAR(sum, 1.0, 1e-6);
  }
  EXPECT_EQ(weights.at({0, 1}), 0.0);
  EXPECT_EQ(weights.at({2, 1}), 1.0);
  EXPECT_NEAR(weights.at({3, 0}), 1.0 / 3, 1e-7);
}

TEST(TrustTest, A9_scores_that_no_machine_can_hold) {
  // Stride 0 makes many tokens of few bytes: only the scores would be large.
  const float number = 1.0F;
  const auto tokens = [&](dim_t count) {
    return TensorView(&number, DType::f32, {1, 1, count, 1}, {0, 0, 0, 0});
  };
  const TensorView large = tokens(dim_t{1} << 31);
  const AttendOptions reference{.engine = Engine::reference};
  const std::string overflow = error_of([&] { attend(large, large, large, {}, reference); });
  EXPECT_NE(overflow.find("attend: the reference engine stores the score of every pair; "),
            std::string::npos)
      << overflow;
  const TensorView million = tokens(1 << 20);
  EXPECT_EQ(kind_of([&] { attend(million, million, million, {}, reference); }),
            Error::Kind::memory);
  // The fused engine stores no scores, but weights that are asked for are stored.
  EXPECT_EQ(
      kind_of([&] { attend(million, million, million, window(0, 0), {.return_weights = true}); }),
      Error::Kind::memory);
  const TensorView batch(&number, DType::f32, {dim_t{1} << 40, 1, dim_t{1} << 20, 1}, {0, 0, 0, 0});
  EXPECT_NE(error_of([&] { attend(batch, batch, batch, {}, reference); }).find("overflows"),
            std::string::npos);
}

TEST(TrustTest, A10_masks_that_do_not_fit) {
  const Tensor q = normal({2, 3, 4, 8}, 1);
  const auto masked = [&](const Mask& mask) { return error_of([&] { attend(q, q, q, mask); }); };
  const auto flags = [](const Shape& shape) { return Tensor::full(shape, 1, DType::boolean); };
  EXPECT_EQ(masked(keep(flags({4, 4}))), "");
  EXPECT_EQ(masked(keep(flags({3, 4, 4}))), "");
  EXPECT_EQ(masked(keep(flags({2, 1, 1, 4}))), "");
  EXPECT_EQ(masked(keep(flags({2, 4, 4}))),  // three dimensions are heads, not batch
            "attend: keep([2, 4, 4]) does not broadcast to [batch, heads, q, k] = [2, 3, 4, 4]; a "
            "mask of three dimensions is [heads, q, k]");
  EXPECT_NE(masked(drop(flags({4, 3}))), "");
  EXPECT_EQ(error_of([&] { keep(flags({4})); }),
            "keep: shape [4] must be [q, k], [heads, q, k] or [batch, heads, q, k]");
  EXPECT_EQ(masked(bias(Tensor::zeros({4, 4}, DType::f64))),
            "attend: bias is float64, float32 or q's float32 is needed");
}

}  // namespace
}  // namespace cephalo
