// Configurations that nobody thought of, held against the brute force.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "cephalo/attention/attend.h"
#include "cephalo/core/format.h"
#include "cephalo/core/random.h"
#include "tests/support/bounds.h"
#include "tests/support/mask_spec.h"
#include "tests/support/plain_attention.h"
#include "tests/support/random_config.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::bound_for;
using testing::largest_difference;
using testing::largest_magnitude;
using testing::MaskSpec;
using testing::plain_attention;
using testing::random_tokens;
using testing::RandomSource;

struct Config {
  MaskExtent extent;
  dim_t num_kv_heads, head_dim, v_dim;
  DType q_type, kv_type;
  std::vector<std::string> parts;
  AttendOptions options;
};

Config random_config(TorchGenerator& generator) {
  constexpr DType kTypes[] = {DType::f32, DType::f32,  DType::f32,
                              DType::f64, DType::bf16, DType::f16};
  Config c;
  c.num_kv_heads = generator.randint(1, 4);
  do {  // the brute force is slow
    c.extent = {generator.randint(1, 4), c.num_kv_heads * generator.randint(1, 4),
                random_tokens(generator), random_tokens(generator)};
    c.head_dim = generator.randint(1, generator.keeps(0.3) ? 131 : 40);
    c.v_dim = generator.randint(1, generator.keeps(0.3) ? 131 : 40);
  } while (c.extent.batch * c.extent.num_heads * c.extent.q_tokens * c.extent.kv_tokens *
               (c.head_dim + c.v_dim + 20) >
           2'000'000);
  c.q_type = c.kv_type = kTypes[generator.randint(0, 6)];
  if (c.q_type == DType::f32 && generator.keeps(0.3)) {
    c.kv_type = generator.keeps(0.5) ? DType::bf16 : DType::f16;
  }
  c.parts = testing::random_mask_parts(generator);
  if (generator.keeps(0.3)) c.options.softcap = 0.5 + 5.0 * generator.uniform53();
  if (generator.keeps(0.3)) c.options.scale = 2.0 * generator.uniform53() - 0.5;
  if (generator.keeps(0.25)) c.options.dropout = 0.9 * generator.uniform53();
  c.options.seed = generator.random64();
  c.options.threads = static_cast<int>(generator.randint(1, 4));
  c.options.return_lse = true;
  return c;
}

std::string to_string(const Config& c, const MaskSpec& mask) {
  return format_text(
      "batch {} heads {}/{} tokens {}/{} width {}/{} {}/{} mask '{}' softcap {} scale {} dropout "
      "{}",
      c.extent.batch, c.extent.num_heads, c.num_kv_heads, c.extent.q_tokens, c.extent.kv_tokens,
      c.head_dim, c.v_dim, name(c.q_type), name(c.kv_type), mask.name,
      c.options.softcap.value_or(0.0), c.options.scale.value_or(0.0), c.options.dropout);
}

// Errors of ours and what is allowed for one configuration.
void check(const Config& c, const MaskSpec& mask, const RandomSource& q, const RandomSource& k,
           const RandomSource& v, int* beyond_plain) {
  const bool wide = c.q_type == DType::f64;
  const double scale = c.options.scale.value_or(1.0 / std::sqrt(static_cast<double>(c.head_dim)));
  const double softcap = c.options.softcap.value_or(0.0);
  const testing::MaskTable table(mask, c.extent);
  const auto plain = wide ? plain_attention<double>(q.view, k.view, v.view, table, scale, softcap)
                          : plain_attention<float>(q.view, k.view, v.view, table, scale, softcap);
  const auto exact =
      wide ? plain_attention<long double>(q.view, k.view, v.view, table, scale, softcap)
           : plain_attention<double>(q.view, k.view, v.view, table, scale, softcap);
  const AttendResult ours = attend(q.view, k.view, v.view, mask.mask, c.options);
  const DType steps = wide ? DType::f64 : DType::f32;
  const double noise = 1.0 + testing::score_noise(q, k, scale);
  const double lse_magnitude = std::max(1.0, testing::largest_finite_magnitude(exact.lse));
  ASSERT_LE(largest_difference(ours.lse, exact.lse),
            bound_for(largest_difference(plain.lse, exact.lse), lse_magnitude + noise, steps));
  const Tensor rounded = Tensor::copy(plain.context, c.q_type);
  const double magnitude = largest_magnitude(v.view) * (is_16_bit_float(c.q_type) ? 1.0 : noise);
  const double plain_error = largest_difference(rounded, exact.context);
  if (c.options.dropout == 0.0) {
    const double error = largest_difference(ours.context, exact.context);
    *beyond_plain += error > bound_for(plain_error, largest_magnitude(v.view), c.q_type) ? 1 : 0;
    ASSERT_LE(error, bound_for(plain_error, magnitude, c.q_type));
    return;
  }
  AttendOptions reference = c.options;
  reference.engine = Engine::reference;
  const AttendResult expected = attend(q.view, k.view, v.view, mask.mask, reference);
  // Kept weights are larger by 1 / (1 - p), and so are their errors; both are rounded to q's type.
  ASSERT_LE(largest_difference(ours.context, expected.context),
            bound_for(largest_difference(rounded, exact.context), 2.0 * magnitude, c.q_type) /
                (1.0 - c.options.dropout));
}

TEST(RandomConfigTest, random_configurations_stay_within_rounding_of_the_brute_force) {
  const int count = testing::rounds(1000);
  int beyond_plain = 0;
  for (int number = 0; number < count; ++number) {
    TorchGenerator generator(static_cast<std::uint64_t>(number));
    const Config c = random_config(generator);
    const MaskExtent& e = c.extent;
    const MaskSpec mask = testing::make_mask_spec(c.parts, e, generator);
    const RandomSource q({e.batch, e.num_heads, e.q_tokens, c.head_dim}, c.q_type, generator);
    const RandomSource k({e.batch, c.num_kv_heads, e.kv_tokens, c.head_dim}, c.kv_type, generator);
    const RandomSource v({e.batch, c.num_kv_heads, e.kv_tokens, c.v_dim}, c.kv_type, generator);
    SCOPED_TRACE(format_text("configuration {}: {} layouts {} {} {}", number, to_string(c, mask),
                             q.layout, k.layout, v.layout));
    ASSERT_NO_FATAL_FAILURE(check(c, mask, q, k, v, &beyond_plain));
  }
  testing::report(
      format_text("{} random configurations, {} of them beyond the conformance suite's bound for "
                  "ordinary scales",
                  count, beyond_plain));
}

// The bound that docs/numerics.md states for large scores: the floor grows with them.
TEST(RandomConfigTest, large_scores_stay_within_the_bound_that_grows_with_them) {
  const int count = testing::rounds(600);
  int beyond_plain = 0;
  double worst = 0.0;
  for (int number = 0; number < count; ++number) {
    TorchGenerator generator(static_cast<std::uint64_t>(number) + 5000);
    const MaskExtent e{1, 2, random_tokens(generator), random_tokens(generator)};
    const dim_t head_dim = generator.randint(1, 100);
    const MaskSpec mask =
        testing::make_mask_spec({number % 2 == 0 ? "none" : "causal"}, e, generator);
    const Tensor q = testing::normal({1, 2, e.q_tokens, head_dim}, generator.random64());
    const Tensor k = testing::normal({1, 2, e.kv_tokens, head_dim}, generator.random64());
    const Tensor v = testing::normal({1, 2, e.kv_tokens, 7}, generator.random64());
    const double deviation = 9.0 + 31.0 * generator.uniform53();
    const double scale = deviation / std::sqrt(static_cast<double>(head_dim));
    const testing::MaskTable table(mask, e);
    const auto exact = plain_attention<double>(q, k, v, table, scale);
    const auto plain = plain_attention<float>(q, k, v, table, scale);
    const AttendResult ours = attend(q, k, v, mask.mask, {.scale = scale, .engine = Engine::fused});
    const double plain_error = largest_difference(plain.context, exact.context);
    const double error = largest_difference(ours.context, exact.context);
    const double size = largest_magnitude(v);
    const double largest_score = scale * testing::largest_norm(q) * testing::largest_norm(k);
    const double bound = bound_for(plain_error, size * (1.0 + largest_score / 4.0), DType::f32);
    beyond_plain += error > bound_for(plain_error, size, DType::f32) ? 1 : 0;
    worst = std::max(worst, error / bound);
    ASSERT_LE(error, bound) << "case " << number << " deviation " << deviation << " tokens "
                            << e.q_tokens << "/" << e.kv_tokens << " width " << head_dim;
  }
  testing::report(
      format_text("{} cases with large scores: worst {:.2f} of what is allowed; {} beyond "
                  "the bound for ordinary scores",
                  count, worst, beyond_plain));
}

// References count on alibi's growth towards near keys; here those are hidden, and weights of 2^-40
// times such values would be nothing.
TEST(RandomConfigTest, alibi_whose_near_keys_are_hidden_keeps_the_digits_of_small_values) {
  const MaskExtent e{1, 2, 90, 90};
  const Tensor q = testing::normal({1, 2, 90, 16}, 1);
  const Tensor k = testing::normal({1, 2, 90, 16}, 2);
  for (const double small : {1.0, 0x1p-110}) {
    Tensor v = testing::normal({1, 2, 90, 8}, 3);
    for (dim_t n = 0; n < v.numel(); ++n)
      v.mutable_data_as<float>()[n] *= static_cast<float>(small);
    for (const dim_t hidden : {8, 20, 40}) {
      Tensor near = Tensor::zeros({90, 90}, DType::boolean);
      MaskSpec spec;
      spec.kv_len = spec.q_len = {90};
      for (dim_t i = 0; i < 90; ++i) {
        for (dim_t j = 0; j < 90; ++j) near.set({i, j}, std::abs(i - j) < hidden ? 1.0 : 0.0);
      }
      spec.may_look.emplace_back(
          [hidden](const auto& pair) { return std::abs(pair.i - pair.j) >= hidden; });
      spec.adds.emplace_back([](const auto& pair) {
        return (pair.h == 0 ? -2.0 : -0.5) * std::abs(static_cast<double>(pair.i - pair.j));
      });
      const testing::MaskTable table(spec, e);
      const auto exact = plain_attention<double>(q, k, v, table, 0.25);
      const auto plain = plain_attention<float>(q, k, v, table, 0.25);
      const AttendResult ours =
          attend(q, k, v, alibi({2.0F, 0.5F}) & drop(near), {.engine = Engine::fused});
      EXPECT_LE(largest_difference(ours.context, exact.context),
                bound_for(largest_difference(plain.context, exact.context), largest_magnitude(v),
                          DType::f32))
          << small << " " << hidden;
    }
  }
}

}  // namespace
}  // namespace cephalo
