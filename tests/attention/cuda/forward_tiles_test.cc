// Tiles of the forward pass on Hopper: a block of the grid takes several, which one of its threads
// finds ahead. A row whose exponentials run away is followed, and no other row feels it.
#include <gtest/gtest.h>

#include "cephalo/core/format.h"
#include "tests/attention/cuda/masks.h"

namespace cephalo {
namespace {

using namespace testing;  // NOLINT: passes and their numbers are what this is about

struct Attended {
  Tensor context, lse;
};
Attended attended(const Pass& pass, Engine engine, const Mask& mask, AttendOptions options = {}) {
  options.return_lse = true;
  options.engine = engine;
  const AttendResult r =
      attend(there(pass.q), there(pass.k), there(pass.v), mask_on_gpu(mask), options);
  return {back(r.context), back(r.lse)};
}

// Hundreds of tiles, of few queries and of many.
TEST_F(HopperTest, tiles_that_follow_each_other_agree_with_cuda_simple) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const dim_t width : {64, 128}) {
      for (const Pass::Sizes& s :
           {Pass::Sizes{2, 80, 40, 150, 264, width}, Pass::Sizes{2, 12, 6, 2100, 395, width}}) {
        const Pass pass(s, dtype);
        for (const Mask& mask : {Mask(), causal(), window(70, 0), lengths({s.kv_tokens, 130}),
                                 lengths({s.kv_tokens, 130}, {s.q_tokens, 90}) & causal()}) {
          SCOPED_TRACE(format_text("{} width {} tokens {}/{} {}", name(dtype), width, s.q_tokens,
                                   s.kv_tokens, mask.to_string()));
          const Attended expected = attended(pass, Engine::cuda_simple, mask);
          const Attended ours = attended(pass, Engine::cuda, mask);
          EXPECT_LE(relative_difference(ours.context, expected.context),
                    dtype == DType::bf16 ? 8e-3 : 2e-3);
          EXPECT_LE(relative_difference(ours.lse, expected.lse), 1e-5);
          const Attended again = attended(pass, Engine::cuda, mask);
          ASSERT_TRUE(same_bits(again.context, ours.context) && same_bits(again.lse, ours.lse));
        }
      }
    }
  }
}

Tensor runs_of_100(dim_t tokens) {
  Tensor ids = Tensor::zeros({tokens}, DType::i64);
  for (dim_t n = 0; n < tokens; ++n) ids.mutable_data_as<std::int64_t>()[n] = n / 100;
  return ids;
}
// 64 rows of a tile may see none of the keys that others see: at the beginning, at the end, or
// anywhere, with documents of 100 tokens. Of some kernels tiles have fewer keys in a block than
// rows.
TEST_F(HopperTest, rows_of_a_tile_that_see_other_keys_agree_with_cuda_simple) {
  const Tensor kept = some_of({700, 650}, 7, 0.3);
  const Tensor q_ids = runs_of_100(700), kv_ids = runs_of_100(650);
  const std::vector<float> slopes{0.5F, 0.1F, 0.0F};
  const AttendOptions capped{.softcap = 20.0}, dropping{.dropout = 0.2, .seed = 3};
  for (const dim_t width : {64, 128}) {
    const Pass pass({2, 3, 3, 700, 650, width}, DType::bf16);
    for (const Mask& mask :
         {causal() & window(20, 0), window(5, 40), causal(300),
          causal() & lengths({650, 111}, {700, 420}), documents(q_ids, kv_ids)}) {
      for (const AttendOptions& options : {AttendOptions{}, capped, dropping}) {
        for (const Mask& all : {mask, mask & keep(kept), mask & alibi(slopes)}) {
          SCOPED_TRACE(format_text("width {} {} softcap {} dropout {}", width, all.to_string(),
                                   options.softcap.value_or(0.0), options.dropout));
          const Attended expected = attended(pass, Engine::cuda_simple, all, options);
          const Attended ours = attended(pass, Engine::cuda, all, options);
          EXPECT_LE(relative_difference(ours.context, expected.context), 8e-3);
          EXPECT_LE(relative_difference(ours.lse, expected.lse), 1e-5);
        }
      }
    }
  }
}

// The same of kernels for wide rows and for float32, whose blocks are of 32 and 64 keys.
TEST_F(HopperTest, rows_of_a_wide_tile_that_see_other_keys_agree_with_cuda_simple) {
  const std::pair<DType, dim_t> rows[] = {
      {DType::bf16, 192}, {DType::f16, 256}, {DType::f32, 64}, {DType::f32, 128}};
  for (const auto& [dtype, width] : rows) {
    const Pass pass({2, 2, 2, 300, 310, width}, dtype);
    for (const Mask& mask :
         {window(3, 0), causal() & window(20, 0) & lengths({310, 97}, {300, 150}),
          window(5, 40) & lengths({310, 33})}) {
      for (const Arithmetic arithmetic : {Arithmetic::exact, Arithmetic::bf16x3}) {
        SCOPED_TRACE(format_text("{} width {} {}", name(dtype), width, mask.to_string()));
        const AttendOptions options{.arithmetic = arithmetic};
        const Attended expected = attended(pass, Engine::cuda_simple, mask);
        const Attended ours = attended(pass, Engine::cuda, mask, options);
        const double bound = dtype != DType::f32               ? 8e-3
                             : arithmetic == Arithmetic::exact ? 2e-6
                                                               : 2e-5;
        EXPECT_LE(relative_difference(ours.context, expected.context), bound);
        EXPECT_LE(relative_difference(ours.lse, expected.lse), 1e-5);
      }
    }
  }
}

constexpr dim_t kKeys = 1100;
bool is_loud(dim_t i) {
  return i % 45 == 7;
}
// Keys grow towards the first, which comes last; loud queries are large.
Pass climbing_pass(dim_t q_tokens, dim_t width, DType dtype, bool has_loud) {
  Pass pass({1, 2, 2, q_tokens, kKeys, width}, dtype);
  for (dim_t h = 0; h < 2; ++h) {
    for (dim_t j = 0; j < kKeys; ++j) {
      const double size = 0.1 + 0.002 * static_cast<double>(kKeys - j);
      for (dim_t d = 0; d < width; ++d) {
        pass.k.set({0, h, j, d}, size * std::abs(pass.k.at({0, h, j, d})));
      }
    }
    for (dim_t i = 0; i < q_tokens; ++i) {
      // Quiet ones differ: some raise their maximum in blocks that look for it, others never do.
      const double size = is_loud(i) && has_loud ? 40.0 : 0.02 * static_cast<double>(1 + i % 50);
      for (dim_t d = 0; d < width; ++d) {
        pass.q.set({0, h, i, d}, size * std::abs(pass.q.at({0, h, i, d})));
      }
    }
  }
  return pass;
}

TEST_F(HopperTest, a_row_whose_sums_run_away_changes_no_bit_of_another) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const dim_t width : {64, 128}) {
      for (const dim_t q_tokens : {300, 2100}) {
        const Pass loud = climbing_pass(q_tokens, width, dtype, true);
        const Pass quiet = climbing_pass(q_tokens, width, dtype, false);
        // Of the third, rows at the beginning of a tile see nothing of the block that comes first.
        for (const Mask& mask : {Mask(), causal(), causal() & positions(Align::top_left, 127)}) {
          SCOPED_TRACE(format_text("{} width {} queries {} {}", name(dtype), width, q_tokens,
                                   mask.to_string()));
          const Attended ours = attended(loud, Engine::cuda, mask);
          const Attended without = attended(quiet, Engine::cuda, mask);
          const Attended expected = attended(loud, Engine::cuda_simple, mask);
          EXPECT_LE(relative_difference(ours.context, expected.context), 8e-3);
          EXPECT_LE(relative_difference(ours.lse, expected.lse), 1e-5);
          for (dim_t h = 0; h < 2; ++h) {
            for (dim_t i = 0; i < q_tokens; ++i) {
              if (is_loud(i)) continue;
              ASSERT_TRUE(same_bits(ours.context[0][h].slice(0, i, i + 1),
                                    without.context[0][h].slice(0, i, i + 1)))
                  << i;
              ASSERT_TRUE(same_bits(ours.lse[0][h].slice(0, i, i + 1),
                                    without.lse[0][h].slice(0, i, i + 1)))
                  << i;
            }
          }
        }
      }
    }
  }
}

// A block's sum may come near the limit without a raise; the next raise must not lose it. From
// right to left: a block of scores of 0, many of 55 powers of two, and one key of 67.
TEST_F(HopperTest, what_came_before_a_raised_maximum_still_counts) {
  const std::vector<float> slopes{0.0F};
  for (const dim_t width : {64, 128}) {
    const dim_t block = width == 64 ? 96 : 128, keys = 22 * block;
    Pass pass({1, 1, 1, 64, keys, width}, DType::bf16);
    pass.q.mutable_view().fill(0.0);
    pass.k.mutable_view().fill(0.0);
    pass.v.mutable_view().fill(0.0);
    const double power = std::log(2.0) * std::sqrt(static_cast<double>(width));
    for (dim_t i = 0; i < 64; ++i) pass.q.set({0, 0, i, 0}, 1.0);
    for (dim_t j = block; j < keys - block; ++j) pass.k.set({0, 0, j, 0}, 55.0 * power);
    pass.k.set({0, 0, 5, 0}, 67.0 * power);
    for (dim_t d = 0; d < width; ++d) pass.v.set({0, 0, 5, d}, 1.0);
    const Tensor nothing = Tensor::zeros({1, 1, 64, keys}, DType::bf16);
    for (const Mask& mask : {Mask(), causal(), alibi(slopes), bias(nothing)}) {
      SCOPED_TRACE(format_text("width {} {}", width, mask.to_string()));
      const Attended ours = attended(pass, Engine::cuda, mask);
      const Attended expected = attended(pass, Engine::cuda_simple, mask);
      ASSERT_LT(expected.context.at({0, 0, 0, 0}), 0.95);  // the others count
      EXPECT_LE(relative_difference(ours.context, expected.context), 8e-3);
      EXPECT_LE(relative_difference(ours.lse, expected.lse), 1e-5);
    }
  }
}

// Where scores climb, weights are kept far below 1: small values must not vanish next to them.
TEST_F(HopperTest, small_values_behind_scores_that_climb_are_kept) {
  for (const dim_t width : {64, 128}) {
    Pass pass = climbing_pass(300, width, DType::bf16, true);
    for (dim_t h = 0; h < 2; ++h) {
      for (dim_t j = 0; j < kKeys; ++j) {
        for (dim_t d = 0; d < width; ++d) {
          pass.v.set({0, h, j, d}, 0x1p-55 * pass.v.at({0, h, j, d}));
        }
      }
    }
    for (const Mask& mask : {Mask(), causal()}) {
      const Attended ours = attended(pass, Engine::cuda, mask);
      const Attended expected = attended(pass, Engine::cuda_simple, mask);
      EXPECT_LE(relative_difference(ours.context, expected.context), 8e-3) << width;
    }
  }
}

}  // namespace
}  // namespace cephalo
