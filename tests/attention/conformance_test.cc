// The one suite that every engine passes. A new engine joins by a line in engines_here().
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "cephalo/attention/attend.h"
#include "cephalo/attention/plan.h"
#include "cephalo/core/format.h"
#include "cephalo/core/parallel.h"
#include "cephalo/core/random.h"
#include "tests/support/bounds.h"
#include "tests/support/engine_calls.h"
#include "tests/support/mask_spec.h"
#include "tests/support/plain_attention.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::bound_for;
using testing::largest_difference;
using testing::largest_magnitude;
using testing::make_mask_spec;
using testing::mask_combinations;
using testing::MaskSpec;
using testing::normal;
using testing::plain_attention;
using testing::same_bits;

class ConformanceTest : public ::testing::TestWithParam<Engine> {
 protected:
  static AttendOptions options() { return {.return_lse = true, .return_weights = true}; }
  static AttendResult run(const TensorView& q, const TensorView& k, const TensorView& v,
                          const Mask& mask,
                          const AttendOptions& options = ConformanceTest::options()) {
    return testing::attend_by(GetParam(), q, k, v, mask, options);
  }
  static bool has_weights() { return testing::entry_of(GetParam()).weights != nullptr; }
  // The promise for weights that are computed again from a rounded lse.
  static double recomputed_weights_error() { return GetParam() == Engine::fused ? 2e-6 : 0.0; }
  // Tensor cores add the products of a score with less care than a loop does.
  static double scores_error(DType dtype) {
    return GetParam() == Engine::cuda && is_16_bit_float(dtype) ? 1e-5 : 0.0;
  }
};
INSTANTIATE_TEST_SUITE_P(Engines, ConformanceTest, ::testing::ValuesIn(testing::engines_here()),
                         [](const auto& engine) { return std::string(name(engine.param)); });

struct Case {
  MaskExtent extent;
  dim_t num_kv_heads, head_dim, v_dim;
  DType dtype;
  std::string to_string(const MaskSpec& mask) const {
    return format_text("batch {} heads {}/{} tokens {}/{} width {}/{} {} {}", extent.batch,
                       extent.num_heads, num_kv_heads, extent.q_tokens, extent.kv_tokens, head_dim,
                       v_dim, name(dtype), mask.name);
  }
};

template <std::size_t N, typename T>
T pick(const T (&values)[N], std::int64_t at) {
  return values[static_cast<std::size_t>(at) % N];
}

// Sizes that walk through all lengths, widths, groupings and types, each at its own pace.
Case make_case(std::int64_t number, TorchGenerator& generator) {
  constexpr dim_t kLengths[] = {1, 2, 3, 17, 97, 257};
  constexpr dim_t kWidths[] = {1, 7, 40, 64, 128};
  constexpr dim_t kKvHeads[] = {1, 2, 4};
  constexpr DType kTypes[] = {DType::f32, DType::f32, DType::f64, DType::bf16, DType::f16};
  Case c;
  // 257 x 257 once in 36: the brute force is slow.
  c.extent = {number % 3 == 0 ? 2 : 1, 4, pick(kLengths, generator.randint(0, 6)),
              pick(kLengths, number)};
  c.num_kv_heads = pick(kKvHeads, generator.randint(0, 3));
  c.head_dim = pick(kWidths, generator.randint(0, 5));
  c.v_dim = pick(kWidths, generator.randint(0, 5));
  c.dtype = pick(kTypes, generator.randint(0, 5));
  return c;
}

// An lse of one key is one score: no average hides its rounding, in q · scale and in the product.
constexpr double kLseMagnitude = 2.0;

// The largest difference of lse, -inf included, in units of max(1, |lse|).
double lse_error(const TensorView& ours, const TensorView& exact) {
  return largest_difference(ours, exact) / std::max(1.0, testing::largest_finite_magnitude(exact));
}

TEST_P(ConformanceTest, error_against_float64_is_at_most_twice_that_of_plain_code) {
  TorchGenerator generator(2024);
  int combinations = 0;
  double worst = 0.0;
  std::string worst_case;
  for (const auto& parts : mask_combinations()) {
    for (int round = 0; round < testing::rounds(27); ++round, ++combinations) {
      const Case c = make_case(combinations, generator);
      const MaskExtent& e = c.extent;
      const MaskSpec mask = make_mask_spec(parts, e, generator);
      const auto seed = std::uint64_t{3} * static_cast<std::uint64_t>(combinations);
      const Tensor q = normal({e.batch, e.num_heads, e.q_tokens, c.head_dim}, seed, c.dtype);
      const Tensor k =
          normal({e.batch, c.num_kv_heads, e.kv_tokens, c.head_dim}, seed + 1, c.dtype);
      const Tensor v = normal({e.batch, c.num_kv_heads, e.kv_tokens, c.v_dim}, seed + 2, c.dtype);
      const double scale = 1.0 / std::sqrt(static_cast<double>(c.head_dim));
      const testing::MaskTable table(mask, e);
      const bool is_double = c.dtype == DType::f64;
      const auto exact = is_double ? plain_attention<long double>(q, k, v, table, scale)
                                   : plain_attention<double>(q, k, v, table, scale);
      const auto plain = is_double ? plain_attention<double>(q, k, v, table, scale)
                                   : plain_attention<float>(q, k, v, table, scale);
      const AttendResult ours = run(q, k, v, mask.mask);

      const Tensor plain_context = Tensor::copy(plain.context, c.dtype);
      const double bound = bound_for(largest_difference(plain_context, exact.context),
                                     largest_magnitude(v), c.dtype);
      const double error = largest_difference(ours.context, exact.context);
      ASSERT_LE(error, bound) << c.to_string(mask);
      const DType steps = is_double ? DType::f64 : DType::f32;
      if (has_weights()) {
        ASSERT_LE(largest_difference(ours.weights, exact.weights),
                  bound_for(largest_difference(plain.weights, exact.weights), 1.0, steps) +
                      recomputed_weights_error())
            << c.to_string(mask);
      }
      ASSERT_LE(
          lse_error(ours.lse, exact.lse),
          bound_for(lse_error(plain.lse, exact.lse), kLseMagnitude, steps) + scores_error(c.dtype))
          << c.to_string(mask);
      if (error / bound > worst) {
        worst = error / bound;
        worst_case = format_text("{:.1e} of {:.1e} allowed: {}", error, bound, c.to_string(mask));
      }
    }
  }
  testing::report(format_text("{} engine: {} combinations; worst {}", name(GetParam()),
                              combinations, worst_case));
  EXPECT_GE(combinations, testing::rounds(2000));
}

// [1, 64] bool: the first `count` keys.
Tensor first_keys(dim_t count) {
  Tensor keys = Tensor::zeros({1, 64}, DType::boolean);
  for (dim_t j = 0; j < count; ++j) keys.set({0, j}, 1.0);
  return keys;
}

// A token that takes no part: NaN, infinity or any other number.
void overwrite_token(Tensor& t, dim_t b, dim_t j, double value) {
  for (dim_t h = 0; h < t.dim(1); ++h) t.mutable_view()[b][h][j].fill(value);
}

TEST_P(ConformanceTest, changing_a_hidden_token_changes_no_bit) {
  TorchGenerator generator(7);
  const auto combinations = mask_combinations();
  const double values[] = {std::numeric_limits<double>::quiet_NaN(),
                           std::numeric_limits<double>::infinity(),
                           -std::numeric_limits<double>::infinity(), 1e30, 0.5};
  const int wanted = testing::rounds(10000);
  int pairs = 0;  // a mask and a token that it hides from some query
  for (int round = 0; pairs < wanted; ++round) {
    const auto& parts = combinations[static_cast<std::size_t>(round) % combinations.size()];
    const MaskExtent e{2, 2, generator.randint(1, 14), generator.randint(1, 14)};
    const MaskSpec mask = make_mask_spec(parts, e, generator);
    const auto seed = static_cast<std::uint64_t>(round);
    const Tensor q = normal({2, 2, e.q_tokens, 5}, seed);
    const Tensor k = normal({2, 1, e.kv_tokens, 5}, seed + 1);
    const Tensor v = normal({2, 1, e.kv_tokens, 3}, seed + 2);
    const AttendResult before = run(q, k, v, mask.mask);
    for (int change = 0; change < 8; ++change) {
      const dim_t b = generator.randint(0, 2);
      const dim_t j = generator.randint(0, e.kv_tokens);
      const double value = pick(values, generator.randint(0, 5));
      Tensor other_k = Tensor::copy(k);
      Tensor other_v = Tensor::copy(v);
      overwrite_token(other_k, b, j, value);
      overwrite_token(other_v, b, j, value);
      const AttendResult after = run(q, other_k, other_v, mask.mask);
      bool hidden_from_some = false;
      for (dim_t other = 0; other < 2; ++other) {
        for (dim_t h = 0; h < 2; ++h) {
          for (dim_t i = 0; i < e.q_tokens; ++i) {
            if (other == b && mask.visible(b, h, i, j)) continue;
            hidden_from_some = hidden_from_some || other == b;
            ASSERT_TRUE(same_bits(after.context[other][h][i], before.context[other][h][i]))
                << mask.name << " key " << j << " query " << i;
            ASSERT_EQ(after.lse.at({other, h, i}), before.lse.at({other, h, i})) << mask.name;
            if (!has_weights()) continue;
            ASSERT_TRUE(same_bits(after.weights[other][h][i], before.weights[other][h][i]));
          }
        }
      }
      pairs += hidden_from_some ? 1 : 0;
    }
  }
  EXPECT_GE(pairs, wanted);
}

// Query 0 sees key 0 alone for a while, and its score is −inf: it has met a key and has no weight
// yet. Its neighbours, which do not see that key, must not round as if another query were new.
TEST_P(ConformanceTest, a_score_of_minus_infinity_changes_no_bit_of_others) {
  constexpr dim_t kQueries = 24, kKeys = 40;
  Tensor visible = Tensor::full({kQueries, kKeys}, 1, DType::u8);
  visible.mutable_view().slice(1, 0, 1).fill(0);
  visible.mutable_view()[0].slice(0, 0, 30).fill(0);
  visible.set({0, 0}, 1);
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Tensor q = normal({kQueries, 32}, seed);
    q.mutable_view()[0].fill(1.0);
    const Tensor k = normal({kKeys, 32}, seed + 1), v = normal({kKeys, 3}, seed + 2);
    Tensor other_k = Tensor::copy(k);
    other_k.mutable_view()[0].fill(-std::numeric_limits<double>::infinity());
    const AttendResult before = attend(q, k, v, keep(visible), options());
    const AttendResult after = attend(q, other_k, v, keep(visible), options());
    for (dim_t i = 1; i < kQueries; ++i) {
      ASSERT_TRUE(same_bits(after.context[i], before.context[i])) << "query " << i;
      ASSERT_EQ(after.lse.at({i}), before.lse.at({i})) << "query " << i;
    }
    // What came after −inf counts in full.
    const AttendResult without =
        attend(q.slice(0, 0, 1), k.slice(0, 30, kKeys), v.slice(0, 30, kKeys), {}, options());
    ASSERT_NEAR(after.lse.at({0}), without.lse.at({0}), 1e-5);
  }
}

TEST_P(ConformanceTest, a_hidden_query_is_zero_whatever_it_holds) {
  Tensor q = normal({1, 2, 6, 4}, 1);
  const Tensor k = normal({1, 2, 6, 4}, 2);
  for (dim_t h = 0; h < 2; ++h) {
    q.mutable_view()[0][h][5].fill(std::numeric_limits<double>::quiet_NaN());
  }
  const AttendResult r = run(q, k, k, lengths({6}, {5}));
  EXPECT_TRUE(testing::all_finite(r.context));
  EXPECT_TRUE(testing::all_zero(r.context[0][1][5]));
}

TEST_P(ConformanceTest, nan_and_infinity_spread_where_they_are_seen) {
  const Tensor q = normal({1, 1, 4, 4}, 1);
  Tensor k = normal({1, 1, 4, 4}, 2);
  k.set({0, 0, 2, 1}, std::numeric_limits<double>::quiet_NaN());
  const AttendResult r = run(q, k, q, causal());
  for (dim_t i = 0; i < 4; ++i) {
    EXPECT_EQ(std::isnan(r.context.at({0, 0, i, 0})), i >= 2);
    EXPECT_EQ(std::isnan(r.lse.at({0, 0, i})), i >= 2);
    for (dim_t j = i + 1; has_weights() && j < 4; ++j) {
      EXPECT_EQ(r.weights.at({0, 0, i, j}), 0.0);
    }
  }
}

TEST_P(ConformanceTest, N3_the_same_bits_for_any_number_of_threads) {
  TorchGenerator generator(5);
  for (const auto& parts : mask_combinations()) {
    const MaskExtent e{2, 3, 97, 60};
    const MaskSpec mask = make_mask_spec(parts, e, generator);
    const Tensor q = normal({2, 3, 97, 24}, 1);
    const Tensor k = normal({2, 3, 60, 24}, 2);
    AttendOptions one = options();
    one.threads = 1;
    one.dropout = 0.1;
    const AttendResult alone = run(q, k, k, mask.mask, one);
    for (const int count : {2, 3, 7}) {
      AttendOptions many = one;
      many.threads = count;
      const AttendResult together = run(q, k, k, mask.mask, many);
      ASSERT_TRUE(same_bits(together.context, alone.context)) << mask.name << " " << count;
      ASSERT_TRUE(same_bits(together.lse, alone.lse)) << mask.name << " " << count;
      ASSERT_TRUE(same_bits(together.weights, alone.weights)) << mask.name << " " << count;
    }
  }
}

// What people add instead of hiding: −1e9, the lowest float.
TEST_P(ConformanceTest, a_large_bias_acts_like_a_mask_where_other_keys_are_left) {
  for (const dim_t q_tokens : {4, 20, 60}) {
    const Tensor q = normal({1, 2, q_tokens, 8}, 1);
    const Tensor k = normal({1, 2, 64, 8}, 2);
    const AttendResult hidden = run(q, k, k, drop(first_keys(16)));
    for (const double low : {-1e5, -1e9, -3e9, -1e20, -1e30, -3.4e38}) {
      Tensor added = Tensor::zeros({1, 64});
      for (dim_t j = 0; j < 16; ++j) added.set({0, j}, low);
      const AttendResult r = run(q, k, k, bias(added));
      EXPECT_LE(largest_difference(r.context, hidden.context), 2e-6) << low;
      EXPECT_LE(largest_difference(r.lse, hidden.lse), 2e-6) << low;
      // The same on every key is a row like any other: finite, and weights that sum to 1.
      Tensor everywhere = Tensor::full({1, 64}, low);
      const AttendResult all = run(q, k, k, bias(everywhere));
      EXPECT_TRUE(testing::all_finite(all.context)) << low;
      if (!has_weights()) continue;
      double sum = 0.0;
      for (dim_t j = 0; j < 64; ++j) sum += all.weights.at({0, 1, q_tokens - 1, j});
      EXPECT_NEAR(sum, 1.0, 1e-5) << low;
    }
  }
}

TEST_P(ConformanceTest, large_scores_stay_finite_and_rows_sum_to_one) {
  for (const double magnitude : {1e4, 1e-40, 0.0}) {
    Tensor q = normal({1, 2, 17, 8}, 1);
    for (dim_t i = 0; i < q.numel(); ++i) {
      q.mutable_data_as<float>()[i] *= static_cast<float>(magnitude);
    }
    const Tensor k = normal({1, 2, 33, 8}, 2);
    const AttendResult r = run(q, k, k, {});
    EXPECT_TRUE(testing::all_finite(r.context));
    for (dim_t i = 0; has_weights() && i < 17; ++i) {
      double sum = 0.0;
      for (dim_t j = 0; j < 33; ++j) sum += r.weights.at({0, 1, i, j});
      EXPECT_NEAR(sum, 1.0, 1e-6);
    }
  }
}

}  // namespace
}  // namespace cephalo
