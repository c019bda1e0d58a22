// Long sequences: memory linear in tokens, whatever the number of pairs.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "cephalo/attention/attend.h"
#include "cephalo/attention/attend_backward.h"
#include "cephalo/attention/weights.h"
#include "cephalo/core/format.h"
#include "tests/support/memory.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::extra_mib;

// Every page is touched, so that it counts as there.
Tensor numbers(const Shape& shape, float step) {
  Tensor t = Tensor::empty(shape);
  float* data = t.mutable_data_as<float>();
  float value = 0.0F;
  for (dim_t k = 0; k < t.numel(); ++k) {
    value += step;
    if (value > 1.0F) value -= 2.0F;
    data[k] = value;
  }
  return t;
}

TEST(MemoryTest, causal_attention_over_131072_tokens_needs_less_than_64_mib) {
  const Shape shape{1, 12, 131072, 64};
  const Tensor q = numbers(shape, 0.37F);
  const Tensor k = numbers(shape, 0.73F);
  const Tensor v = numbers(shape, 0.11F);
  Tensor context = numbers(shape, 0.5F);
  const double extra = extra_mib([&] { attend_into({context}, q, k, v, causal()); });
  testing::report(format_text("131,072 tokens x 12 heads x 64, causal: {:.1f} MiB extra", extra));
  EXPECT_LT(extra, 64.0);
  // The first query sees one key; the last one all.
  EXPECT_NEAR(context.at({0, 3, 0, 5}), v.at({0, 3, 0, 5}), 1e-6);
  EXPECT_TRUE(testing::all_finite(context[0][11].slice(0, 131071, 131072)));
}

TEST(MemoryTest, forward_and_backward_over_32768_tokens_need_less_than_64_mib) {
  const Shape shape{1, 12, 32768, 64};
  const Tensor q = numbers(shape, 0.37F);
  const Tensor k = numbers(shape, 0.73F);
  const Tensor v = numbers(shape, 0.11F);
  const Tensor dcontext = numbers(shape, 0.29F);
  Tensor context = numbers(shape, 0.5F);
  Tensor lse = numbers({1, 12, 32768}, 0.5F);
  Tensor dq = numbers(shape, 0.5F), dk = numbers(shape, 0.5F), dv = numbers(shape, 0.5F);
  const AttendOptions options{.require = Engine::fused, .threads = 2};
  const double extra = extra_mib([&] {
    attend_into({context, lse}, q, k, v, causal(), options);
    attend_backward_into({dq, dk, dv}, {context, lse, dcontext}, q, k, v, causal(), options);
  });
  testing::report(format_text(
      "32,768 tokens x 12 heads x 64, causal, forward and backward on 2 threads: {:.1f} "
      "MiB beside tensors and gradients",
      extra));
  EXPECT_LT(extra, 64.0);
  // The first query sees one key, so its scores have no gradient; the last key is seen once.
  EXPECT_LE(testing::largest_magnitude(dq[0][3][0]), 1e-6);
  const auto last = [&](const Tensor& t, dim_t d) { return t.at({0, 5, 32767, d}); };
  double score = 0.0;
  for (dim_t d = 0; d < 64; ++d) score += last(q, d) * last(k, d) / 8.0;
  const double weight = std::exp(score - lse.at({0, 5, 32767}));
  EXPECT_NEAR(last(dv, 7), weight * last(dcontext, 7), 1e-4 * weight);
}

TEST(MemoryTest, a_window_of_1024_over_1048576_tokens_finishes) {
  const Shape shape{1, 2, 1048576, 64};
  const Tensor q = numbers(shape, 0.37F);
  const Tensor k = numbers(shape, 0.73F);
  Tensor context = numbers(shape, 0.5F);
  const double extra = extra_mib([&] { attend_into({context}, q, k, k, window(1023, 0)); });
  testing::report(format_text("1,048,576 tokens, window of 1,024: {:.1f} MiB extra", extra));
  EXPECT_LT(extra, 64.0);
  EXPECT_NEAR(context.at({0, 1, 0, 5}), k.at({0, 1, 0, 5}), 1e-6);
}

TEST(MemoryTest, a_pooled_map_of_32768_tokens_needs_less_than_64_mib) {
  const Shape shape{1, 1, 32768, 64};
  const Tensor q = numbers(shape, 0.37F);
  const Tensor k = numbers(shape, 0.73F);
  const AttendResult r = attend(q, k, k, causal(), {.return_lse = true});
  PooledWeights map;
  const double extra = extra_mib([&] { map = pooled_weights(q, k, r.lse, 512, 0, 0, causal()); });
  testing::report(format_text("pooled map of 32,768 tokens: {:.1f} MiB extra", extra));
  EXPECT_LT(extra, 64.0);
  // A row of cells holds 64 rows that sum to 1 each.
  double sum = 0.0;
  for (dim_t x = 0; x < 512; ++x) sum += map.mean.at({300, x}) * 64.0 * 64.0;
  EXPECT_NEAR(sum, 64.0, 1e-3);
}

}  // namespace
}  // namespace cephalo
