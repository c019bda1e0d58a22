#include "cephalo/attention/attend.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cephalo/core/ops.h"
#include "cephalo/core/random.h"
#include "cephalo/core/views.h"
#include "tests/support/golden.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::all_zero;
using testing::normal;
using testing::same_bits;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(AttendTest, queries_keys_and_values_on_their_own) {
  const Tensor q = normal({3, 4}, 1);
  const Tensor k = normal({3, 4}, 2);
  const Tensor v = normal({3, 4}, 3);
  const AttendResult r = attend(
      q, k, v, {}, {.return_lse = true, .return_weights = true, .engine = Engine::reference});
  EXPECT_EQ(r.context.shape(), (Shape{3, 4}));
  EXPECT_EQ(r.weights.shape(), (Shape{3, 3}));
  EXPECT_EQ(r.lse.shape(), Shape{3});
  const Tensor weights = softmax(multiply(matmul(q, transpose(k, 0, 1)), 0.5));
  EXPECT_TRUE(same_bits(r.weights, weights));
  EXPECT_TRUE(same_bits(r.context, matmul(weights, v)));
}

TEST(AttendTest, the_result_has_the_rank_of_q) {
  const Tensor q = normal({2, 3, 4, 5}, 1);
  const AttendResult four = attend(q, q, q, causal());
  const AttendResult three = attend(q[1], q[1], q[1], causal(), {.return_lse = true});
  EXPECT_EQ(four.context.shape(), (Shape{2, 3, 4, 5}));
  EXPECT_EQ(three.context.shape(), (Shape{3, 4, 5}));
  EXPECT_EQ(three.lse.shape(), (Shape{3, 4}));
  EXPECT_TRUE(same_bits(three.context, four.context[1]));
}

TEST(AttendTest, any_strides_give_the_same_bits) {
  // (batch, tokens, heads, dim) and packed qkv, read where they lie.
  const Tensor packed = normal({2, 5, 3, 4, 6}, 1);  // batch, tokens, q|k|v, heads, dim
  const auto part = [&](dim_t which) { return transpose(packed.select(2, which), 1, 2); };
  const AttendResult strided = attend(part(0), part(1), part(2), causal());
  const Tensor q = Tensor::copy(part(0));
  const Tensor k = Tensor::copy(part(1));
  const Tensor v = Tensor::copy(part(2));
  EXPECT_TRUE(same_bits(strided.context, attend(q, k, v, causal()).context));
  const TensorView reversed(v.data_as<float>() + v.numel() - 1, DType::f32, v.shape(),
                            {-v.strides()[0], -v.strides()[1], -v.strides()[2], -1});
  EXPECT_TRUE(
      same_bits(attend(q, k, reversed).context, attend(q, k, Tensor::copy(reversed)).context));
  // Elements that lie apart, for few and many queries.
  for (const dim_t tokens : {1, 8, 9, 50}) {
    const Tensor apart = normal({6, 70, 4, 2}, 2);  // dim, tokens, heads, batch
    const TensorView kv = permute(apart, {3, 2, 1, 0});
    const Tensor dense = Tensor::copy(kv);
    const TensorView queries = kv.slice(2, 0, tokens);
    EXPECT_TRUE(same_bits(attend(queries, kv, kv, causal()).context,
                          attend(Tensor::copy(queries), dense, dense, causal()).context))
        << tokens;
  }
}

TEST(AttendTest, neighbouring_query_heads_share_a_kv_head) {
  const Tensor q = normal({1, 6, 4, 8}, 1);
  const Tensor k = normal({1, 2, 5, 8}, 2);
  const Tensor v = normal({1, 2, 5, 3}, 3);
  const Tensor shared = attend(q, k, v).context;
  for (dim_t h = 0; h < 6; ++h) {
    const dim_t kv = h / 3;
    EXPECT_TRUE(same_bits(shared[0][h], attend(q[0][h], k[0][kv], v[0][kv]).context));
  }
}

TEST(AttendTest, a_query_that_may_look_at_nothing_gives_zero_and_minus_infinity) {
  const Tensor q = normal({1, 2, 4, 8}, 1);
  const Tensor k = normal({1, 2, 2, 8}, 2);
  const AttendOptions all{.return_lse = true, .return_weights = true};
  const AttendResult r = attend(q, k, k, causal(), all);  // positions -2, -1, 0, 1
  for (dim_t i = 0; i < 4; ++i) {
    EXPECT_EQ(all_zero(r.context[0][0][i]), i < 2);
    EXPECT_EQ(all_zero(r.weights[0][0][i]), i < 2);
    EXPECT_EQ(r.lse.at({0, 0, i}) == -kInfinity, i < 2);
  }
}

TEST(AttendTest, empty_sizes_are_defined) {
  const Tensor q = normal({2, 3, 4, 5}, 1);
  const AttendOptions all{.return_lse = true, .return_weights = true};
  const Tensor no_keys = Tensor::empty({2, 3, 0, 5});
  const AttendResult r = attend(q, no_keys, no_keys, causal(), all);
  EXPECT_TRUE(all_zero(r.context));
  EXPECT_EQ(r.context.shape(), (Shape{2, 3, 4, 5}));
  EXPECT_EQ(r.weights.shape(), (Shape{2, 3, 4, 0}));
  for (dim_t i = 0; i < 4; ++i) EXPECT_EQ(r.lse.at({1, 2, i}), -kInfinity);
  const Tensor no_queries = Tensor::empty({2, 3, 0, 5});
  EXPECT_EQ(attend(no_queries, q, q, causal(), all).context.shape(), (Shape{2, 3, 0, 5}));
  const Tensor no_batch = Tensor::empty({0, 3, 4, 5});
  EXPECT_EQ(attend(no_batch, no_batch, no_batch, causal(), all).lse.shape(), (Shape{0, 3, 4}));
  const Tensor no_width = Tensor::empty({2, 3, 4, 0});
  EXPECT_EQ(attend(q, q, no_width, causal(), all).context.shape(), (Shape{2, 3, 4, 0}));
}

TEST(AttendTest, taps_show_the_scores_at_their_point_and_change_no_bit_of_context) {
  const Tensor q = normal({1, 2, 5, 8}, 1);
  const Tensor k = normal({1, 2, 5, 8}, 2);
  const Mask mask = causal() & alibi({0.5F, 0.25F});
  AttendOptions options{.softcap = 1.5};
  const Tensor plain = attend(q, k, k, mask, options).context;
  const auto scores_at = [&](ScoresTap tap) {
    options.return_scores = tap;
    AttendResult r = attend(q, k, k, mask, options);
    EXPECT_TRUE(same_bits(r.context, plain));
    return std::move(r.scores);
  };
  const double product = matmul(q[0], transpose(k[0], 1, 2)).at({1, 3, 1});
  const Tensor scaled = scores_at(ScoresTap::scaled);
  EXPECT_NEAR(scaled.at({0, 1, 3, 1}), product / std::sqrt(8.0), 1e-6);
  EXPECT_NE(scaled.at({0, 1, 3, 4}), -kInfinity);
  const Tensor capped = scores_at(ScoresTap::softcapped);
  const double expected = 1.5 * std::tanh(product / std::sqrt(8.0) / 1.5);
  EXPECT_NEAR(capped.at({0, 1, 3, 1}), expected, 1e-6);
  const Tensor masked = scores_at(ScoresTap::masked);
  EXPECT_NEAR(masked.at({0, 1, 3, 1}), expected - 0.25 * 2, 1e-6);
  EXPECT_EQ(masked.at({0, 1, 3, 4}), -kInfinity);
}

TEST(AttendTest, asking_for_more_never_changes_the_context) {
  const Tensor q = normal({2, 2, 9, 16}, 1);
  const AttendOptions dropped{.dropout = 0.3, .seed = 5};
  for (AttendOptions options : {AttendOptions{}, dropped}) {
    const Tensor plain = attend(q, q, q, causal(), options).context;
    options.return_lse = true;
    options.return_weights = true;
    EXPECT_TRUE(same_bits(attend(q, q, q, causal(), options).context, plain));
    for (const ScoresTap tap : {ScoresTap::scaled, ScoresTap::softcapped, ScoresTap::masked}) {
      options.return_scores = tap;
      EXPECT_TRUE(same_bits(attend(q, q, q, causal(), options).context, plain));
    }
  }
}

TEST(AttendTest, counter_dropout_is_philox_of_position_head_and_batch) {
  const Tensor q = normal({2, 3, 6, 4}, 1);
  const Tensor v = Tensor::full({2, 3, 6, 4}, 1.0);
  const double p = 0.4;
  const std::uint64_t seed = 77;
  const AttendResult r = attend(q, q, v, {}, {.dropout = p, .seed = seed, .return_weights = true});
  for (dim_t b = 0; b < 2; ++b) {
    for (dim_t h = 0; h < 3; ++h) {
      for (dim_t i = 0; i < 6; ++i) {
        double sum = 0.0;
        for (dim_t j = 0; j < 6; ++j) {
          const PhiloxCounter words =
              philox(seed, {static_cast<std::uint32_t>(j / 4), static_cast<std::uint32_t>(i),
                            static_cast<std::uint32_t>(h), static_cast<std::uint32_t>(b)});
          const bool kept = words[static_cast<std::size_t>(j % 4)] >= p * 0x1p32;
          if (kept) sum += r.weights.at({b, h, i, j}) / (1 - p);
        }
        EXPECT_NEAR(r.context.at({b, h, i, 0}), sum, 1e-6);
      }
    }
  }
}

TEST(AttendTest, counter_dropout_follows_positions_not_indices) {
  const Tensor q = normal({1, 1, 6, 4}, 1);
  const AttendOptions options{.dropout = 0.5, .seed = 3};
  const Tensor whole = attend(q, q, q, causal(), options).context;
  const Tensor last = attend(q.slice(2, 4, 6), q, q, causal(), options).context;
  EXPECT_TRUE(same_bits(last, whole.slice(2, 4, 6)));
}

TEST(AttendTest, torch_dropout_draws_for_hidden_pairs_too) {
  const Tensor q = normal({1, 2, 3, 4}, 1);
  TorchGenerator generator(9);
  attend(q, q, q, causal(),
         {.dropout = 0.1, .dropout_stream = DropoutStream::torch, .generator = &generator});
  TorchGenerator expected(9);
  for (int draws = 0; draws < 2 * 3 * 3; ++draws) expected.random64();
  EXPECT_EQ(generator.random(), expected.random());
}

TEST(AttendTest, float32_queries_over_16_bit_keys_and_values) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Tensor q = normal({1, 2, 5, 8}, 1);
    const Tensor k = normal({1, 2, 5, 8}, 2, dtype);
    const Tensor v = normal({1, 2, 5, 8}, 3, dtype);
    const AttendResult r = attend(q, k, v);
    EXPECT_EQ(r.context.dtype(), DType::f32);
    const Tensor wide_k = Tensor::copy(k, DType::f32);
    const Tensor wide_v = Tensor::copy(v, DType::f32);
    EXPECT_TRUE(same_bits(r.context, attend(q, wide_k, wide_v).context));
    const Tensor narrow_q = Tensor::copy(q, dtype);
    const AttendResult narrow =
        attend(narrow_q, k, v, {}, {.return_lse = true, .return_weights = true});
    EXPECT_EQ(narrow.context.dtype(), dtype);
    EXPECT_EQ(narrow.weights.dtype(), DType::f32);
    EXPECT_EQ(narrow.lse.dtype(), DType::f32);
  }
}

TEST(AttendTest, equals_pytorch_on_every_mask_and_grouping) {
  int compared = 0;
  const auto golden = testing::read_golden("attend.json");
  for (const auto& c : golden.at("cases")) {
    if (c.at("case") == "rotary") continue;  // a layer's matter
    const auto dim = [&](const char* key) { return c.at(key).get<dim_t>(); };
    const Tensor q = normal({dim("batch"), dim("num_heads"), dim("q_tokens"), dim("head_dim")}, 1);
    const Tensor k =
        normal({dim("batch"), dim("num_kv_heads"), dim("kv_tokens"), dim("head_dim")}, 2);
    const Tensor v = normal({dim("batch"), dim("num_kv_heads"), dim("kv_tokens"), dim("v_dim")}, 3);
    AttendOptions options{.return_lse = true, .return_weights = true};
    if (c.contains("scale")) options.scale = c.at("scale").get<double>();
    if (c.contains("softcap") && !c.at("softcap").is_null()) options.softcap = c.at("softcap");
    // float64 with float64's tolerance, float32 with its own.
    for (const DType dtype : {DType::f64, DType::f32}) {
      const double bound = dtype == DType::f64 ? 1e-12 : 1e-6;
      const AttendResult r = attend(Tensor::copy(q, dtype), Tensor::copy(k, dtype),
                                    Tensor::copy(v, dtype), testing::golden_mask(c), options);
      EXPECT_LE(testing::golden_difference(c.at("context"), r.context), bound) << c.at("case");
      EXPECT_LE(testing::golden_difference(c.at("weights"), r.weights), bound) << c.at("case");
      Tensor lse = Tensor::copy(r.lse);
      int empty = 0;
      for (dim_t i = 0; i < lse.numel(); ++i) {
        const TensorView flat = view(lse, {-1});
        if (flat.at({i}) == -kInfinity) {
          ++empty;
          MutableTensorView(lse.mutable_view().mutable_data(), dtype, {lse.numel()})
              .set({i}, -1e30);
        }
      }
      EXPECT_EQ(empty, c.at("empty_rows").get<int>()) << c.at("case");
      if (empty == 0) {
        EXPECT_LE(testing::golden_difference(c.at("lse"), lse), 2 * bound) << c.at("case");
      }
      ++compared;
    }
  }
  EXPECT_EQ(compared, 2 * (3 * 13 + 2));
}

}  // namespace
}  // namespace cephalo
