// Kernels for Hopper of rows of more than 128 columns, and of float32: against cuda_simple, and
// against float64.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "cephalo/core/format.h"
#include "tests/attention/cuda/masks.h"
#include "tests/attention/cuda/pass.h"

namespace cephalo {
namespace {

using namespace testing;  // NOLINT: passes and their numbers are what this is about

const Pass::Sizes kSizes[] = {{1, 2, 2, 1, 1, 0},       {2, 4, 2, 97, 97, 0},
                              {1, 2, 1, 257, 97, 0},    {2, 2, 2, 97, 257, 0},
                              {1, 2, 1, 1025, 1025, 0}, {1, 1, 1, 33, 515, 0}};

TEST_F(HopperTest, wide_rows_agree_with_cuda_simple) {
  const std::pair<dim_t, dim_t> widths[] = {{256, 256}, {192, 128}, {136, 200}, {129, 7}};
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const auto& [width, v_width] : widths) {
      for (Pass::Sizes s : kSizes) {
        s.width = width;
        s.v_width = v_width;
        const Pass pass(s, dtype);
        for (const Mask& mask : masks_by_position(s.batch, s.q_tokens, s.kv_tokens)) {
          SCOPED_TRACE(format_text("{} width {}/{} tokens {}/{} {}", name(dtype), width, v_width,
                                   s.q_tokens, s.kv_tokens, mask.to_string()));
          const PassNumbers expected = pass.run(Engine::cuda_simple, mask);
          expect_near(pass.run(Engine::cuda, mask), expected, dtype);
          if (width == 256) expect_near(pass.run(Engine::cuda, mask, false), expected, dtype);
        }
      }
    }
  }
}

TEST_F(HopperTest, wide_rows_under_every_mask_by_content_agree_with_cuda_simple) {
  const AttendOptions options{.softcap = 20.0, .dropout = 0.1, .seed = 3};
  const std::pair<dim_t, dim_t> widths[] = {{256, 256}, {192, 128}};
  for (const auto& [width, v_width] : widths) {
    const Pass::Sizes s{2, 4, 2, 200, 264, width, v_width};
    const Pass pass(s, DType::bf16);
    for (const NamedMask& m : masks_by_content(s, DType::bf16)) {
      SCOPED_TRACE(format_text("width {} {}", width, m.name));
      expect_near(pass.run(Engine::cuda, m.mask), pass.run(Engine::cuda_simple, m.mask),
                  DType::bf16);
      expect_near(pass.run(Engine::cuda, m.mask, true, options),
                  pass.run(Engine::cuda_simple, m.mask, true, options), DType::bf16);
    }
  }
}

// ---- float32 ------------------------------------------------------------------------------------
TEST_F(HopperTest, float32_is_as_accurate_as_float32) {
  for (const dim_t width : {64, 128, 40}) {
    for (Pass::Sizes s : kSizes) {
      s.width = width;
      const Pass pass(s, DType::f32);
      const Pass wide(pass, DType::f64);
      for (const Mask& mask : masks_by_position(s.batch, s.q_tokens, s.kv_tokens)) {
        SCOPED_TRACE(format_text("width {} tokens {}/{} {}", width, s.q_tokens, s.kv_tokens,
                                 mask.to_string()));
        const PassNumbers plain = pass.run(Engine::cuda_simple, mask);
        const PassNumbers exact = wide.run(Engine::cuda_simple, mask);
        expect_as_accurate_as_float32(pass.run(Engine::cuda, mask), plain, exact);
        expect_as_accurate_as_float32(pass.run(Engine::cuda, mask, false), plain, exact);
      }
    }
  }
}

TEST_F(HopperTest, float32_is_as_accurate_under_every_mask_by_content) {
  const Pass::Sizes s{2, 4, 2, 200, 264, 128, 72};
  const Pass pass(s, DType::f32);
  const Pass wide(pass, DType::f64);
  for (const AttendOptions& options :
       {AttendOptions{}, AttendOptions{.softcap = 20.0, .dropout = 0.1, .seed = 3}}) {
    for (const NamedMask& m : masks_by_content(s, DType::f32)) {
      SCOPED_TRACE(format_text("{} softcap {}", m.name, options.softcap.value_or(0.0)));
      expect_as_accurate_as_float32(pass.run(Engine::cuda, m.mask, true, options),
                                    pass.run(Engine::cuda_simple, m.mask, true, options),
                                    wide.run(Engine::cuda_simple, m.mask, true, options));
    }
  }
}

// Sums over thousands of keys of one sign, which rounding towards 0 would make too small.
TEST_F(HopperTest, float32_does_not_drift_over_long_sums) {
  Pass pass({1, 1, 1, 128, 8192, 128}, DType::f32);
  for (dim_t j = 0; j < 8192; ++j) {
    pass.v.mutable_view()[0][0][j].fill(0.7 + 1e-4 * static_cast<double>(j % 7));
  }
  const Pass wide(pass, DType::f64);
  expect_as_accurate_as_float32(pass.run(Engine::cuda, {}), pass.run(Engine::cuda_simple, {}),
                                wide.run(Engine::cuda_simple, {}));
}

double worst_difference(const PassNumbers& a, const PassNumbers& b) {
  return std::max({relative_difference(a.context, b.context), relative_difference(a.dq, b.dq),
                   relative_difference(a.dk, b.dk), relative_difference(a.dv, b.dv)});
}

TEST_F(HopperTest, bf16x3_is_within_its_bound) {
  const AttendOptions options{.arithmetic = Arithmetic::bf16x3};
  for (const dim_t width : {64, 128}) {
    for (const dim_t tokens : {97, 1025}) {
      Pass pass({1, 2, 1, tokens, tokens, width}, DType::f32);
      for (const Mask& mask : {Mask(), causal()}) {
        const PassNumbers exact = Pass(pass, DType::f64).run(Engine::cuda_simple, mask);
        EXPECT_LE(worst_difference(pass.run(Engine::cuda, mask, true, options), exact), 2e-5);
      }
    }
  }
  // Scores near 50: what is lost of them is lost of weights 50 times over.
  Pass far({1, 2, 1, 300, 300, 128}, DType::f32);
  for (float* x = far.q.mutable_data_as<float>(); x != far.q.data_as<float>() + far.q.numel();
       ++x) {
    *x *= 15.0F;
  }
  const PassNumbers exact = Pass(far, DType::f64).run(Engine::cuda_simple, {});
  EXPECT_LE(worst_difference(far.run(Engine::cuda, {}, true, options), exact), 2e-4);
}

// ---- both ---------------------------------------------------------------------------------------
TEST_F(HopperTest, nan_that_is_hidden_from_wide_or_float32_rows_reaches_nothing) {
  const std::pair<DType, dim_t> rows[] = {{DType::bf16, 256}, {DType::f32, 64}, {DType::f32, 128}};
  for (const auto& [dtype, width] : rows) {
    const Pass clean({2, 2, 1, 200, 300, width}, dtype);
    const Mask mask = lengths({300, 170}, {200, 90}) & causal();
    const PassNumbers expected = clean.run(Engine::cuda, mask);
    Pass dirty(clean, dtype);
    for (dim_t j = 170; j < 300; ++j) {
      dirty.k.mutable_view()[1][0][j].fill(kNan);
      dirty.v.mutable_view()[1][0][j].fill(kNan);
    }
    for (dim_t h = 0; h < 2; ++h) {
      for (dim_t i = 90; i < 200; ++i) {
        dirty.q.mutable_view()[1][h][i].fill(kNan);
        dirty.dcontext.mutable_view()[1][h][i].fill(kNan);
      }
    }
    const PassNumbers ours = dirty.run(Engine::cuda, mask);
    EXPECT_TRUE(same_numbers(ours, expected)) << name(dtype) << " " << width;
    EXPECT_TRUE(all_finite(ours.context) && all_finite(ours.dq));
    EXPECT_TRUE(all_zero(ours.context[1][0].slice(0, 90, 200)));
    EXPECT_TRUE(all_zero(ours.dk[1][0].slice(0, 170, 300)));
  }
}

TEST_F(HopperTest, nan_that_some_queries_of_float32_see_reaches_those_alone) {
  Pass pass({1, 1, 1, 200, 200, 128}, DType::f32);
  pass.v.mutable_view()[0][0][120].fill(kNan);
  const PassNumbers ours = pass.run(Engine::cuda, causal());
  EXPECT_TRUE(all_finite(ours.context[0][0].slice(0, 0, 120)));
  EXPECT_TRUE(all_finite(ours.dq[0][0].slice(0, 0, 120)));
  for (dim_t i = 120; i < 200; ++i) EXPECT_TRUE(std::isnan(ours.context.at({0, 0, i, 5}))) << i;
}

TEST_F(HopperTest, numbers_near_the_largest_float32_do_not_overflow) {
  Pass pass({1, 1, 1, 64, 400, 64}, DType::f32);
  for (dim_t j = 0; j < 400; ++j) pass.v.mutable_view()[0][0][j].fill(1e37);
  const Tensor gq = there(pass.q), gk = there(pass.k), gv = there(pass.v);
  const Tensor context = back(attend(gq, gk, gv, {}, {.engine = Engine::cuda}).context);
  EXPECT_NEAR(context.at({0, 0, 3, 7}) / 1e37, 1.0, 1e-5);
}

TEST_F(HopperTest, gradients_of_wide_and_float32_rows_have_the_same_bits_every_time) {
  const std::pair<DType, dim_t> rows[] = {{DType::bf16, 256}, {DType::f32, 128}};
  for (const auto& [dtype, width] : rows) {
    const Pass::Sizes s{1, 4, 2, 1100, 1100, width};
    const Pass pass(s, dtype);
    std::vector<Mask> masks{Mask(), causal(), window(500, 100)};
    for (const NamedMask& m : masks_by_content(s, dtype)) masks.push_back(m.mask);
    for (const Mask& mask : masks) {
      const PassNumbers first = pass.run(Engine::cuda, mask);
      for (int repeat = 0; repeat < 5; ++repeat) {
        ASSERT_TRUE(same_numbers(pass.run(Engine::cuda, mask), first)) << mask.to_string();
      }
    }
  }
}

// q is float32 and what it meets is not; heads lie beside each other in a row of tokens.
TEST_F(HopperTest, float32_queries_meet_keys_of_16_bits) {
  Pass pass({2, 4, 2, 130, 130, 64}, DType::f32);
  const Tensor k = Tensor::copy(pass.k, DType::bf16), v = Tensor::copy(pass.v, DType::bf16);
  pass.k = Tensor::copy(k, DType::f32);
  pass.v = Tensor::copy(v, DType::f32);
  const PassNumbers expected = pass.run(Engine::cuda, causal());
  const Tensor gq = there(pass.q), gk = there(k), gv = there(v);
  const AttendResult ours = attend(gq, gk, gv, causal(), {.engine = Engine::cuda});
  EXPECT_TRUE(same_bits(back(ours.context), expected.context));
}

}  // namespace
}  // namespace cephalo
