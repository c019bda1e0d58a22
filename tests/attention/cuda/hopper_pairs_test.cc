// Kernels for Hopper that look at pairs (documents, alibi, tensors, softcap, dropout), and rows of
// any width, against cuda_simple and the CPU.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "cephalo/core/format.h"
#include "tests/attention/cuda/masks.h"
#include "tests/attention/cuda/pass.h"

namespace cephalo {
namespace {

using namespace testing;  // NOLINT: passes and their numbers are what this is about

TEST_F(HopperTest, every_mask_by_content_agrees_with_cuda_simple) {
  const Pass::Sizes sizes[] = {{2, 4, 2, 97, 97, 64},
                               {1, 2, 1, 257, 130, 128},
                               {2, 2, 2, 97, 257, 128},
                               {1, 2, 1, 515, 515, 64}};
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const Pass::Sizes& s : sizes) {
      const Pass pass(s, dtype);
      for (const NamedMask& m : masks_by_content(s, dtype)) {
        SCOPED_TRACE(format_text("{} width {} tokens {}/{} {}", name(dtype), s.width, s.q_tokens,
                                 s.kv_tokens, m.name));
        const PassNumbers expected = pass.run(Engine::cuda_simple, m.mask);
        expect_near(pass.run(Engine::cuda, m.mask), expected, dtype);
        expect_near(pass.run(Engine::cuda, m.mask, false), expected, dtype);
      }
    }
  }
}

// A bias of every pair that the copy engine brings: rows of 16 bytes, with pairs hidden by −inf,
// rows of nothing else, and rows of the lowest number, whose weights are all the same.
Tensor bias_of_pairs(const Pass::Sizes& s, DType dtype, dim_t batch, dim_t heads) {
  Tensor wide = normal({batch, heads, s.q_tokens, s.kv_tokens}, 12);
  for (dim_t n = 0; n < wide.numel(); n += 5) wide.mutable_data_as<float>()[n] = -INFINITY;
  for (dim_t b = 0; b < batch; ++b) {
    for (dim_t h = 0; h < heads; ++h) {
      wide.mutable_view()[b][h][s.q_tokens / 2].fill(-INFINITY);
      wide.mutable_view()[b][h][s.q_tokens / 3].fill(dtype == DType::f16 ? -60000.0 : -3.3e38);
    }
  }
  return Tensor::copy(wide, dtype);
}

// Kernels of their own, which documents in stretches may join; two things at once go to pairs.
TEST_F(HopperTest, one_thing_beside_positions_agrees_with_cuda_simple) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const dim_t width : {64, 128}) {
      for (const Pass::Sizes& s :
           {Pass::Sizes{2, 4, 2, 200, 264, width}, Pass::Sizes{1, 2, 1, 600, 600, width}}) {
        const Pass pass(s, dtype);
        const Tensor kv_ids = ids_in_stretches({s.kv_tokens}, 5, 1);
        Tensor q_ids = Tensor::zeros({s.q_tokens}, DType::i64);
        for (dim_t i = 0; i < s.q_tokens; ++i) {
          q_ids.set({i}, kv_ids.at({i * s.kv_tokens / s.q_tokens}));
        }
        const Mask by_document = documents(q_ids, kv_ids);
        const Tensor shared = bias_of_pairs(s, dtype, 1, s.heads);
        const Tensor of_sequence = bias_of_pairs(s, dtype, s.batch, 1);
        std::vector<float> slopes(static_cast<std::size_t>(s.heads), 0.3F);
        const std::vector<dim_t> kv_len(static_cast<std::size_t>(s.batch), s.kv_tokens - 70);
        const std::pair<Mask, AttendOptions> cases[] = {
            {bias(shared), {}},
            {bias(of_sequence) & causal(), {}},
            {bias(shared) & by_document & lengths(kv_len), {}},
            {alibi(slopes) & by_document & causal(), {}},
            {alibi(slopes) & window(70, 90), {}},
            {by_document & lengths(kv_len), {.softcap = 3.0}},
            {causal() & window(150, 0), {.softcap = 20.0}},
            {by_document & causal(), {.dropout = 0.2, .seed = 5}},
            {lengths(kv_len), {.dropout = 0.5, .seed = 6}},
            {bias(shared) & alibi(slopes) & causal(), {.softcap = 9.0, .dropout = 0.1, .seed = 7}}};
        for (const auto& [mask, options] : cases) {
          SCOPED_TRACE(format_text("{} width {} tokens {}/{} {} softcap {} dropout {}", name(dtype),
                                   width, s.q_tokens, s.kv_tokens, mask.to_string(),
                                   options.softcap.value_or(0), options.dropout));
          const PassNumbers expected = pass.run(Engine::cuda_simple, mask, true, options);
          expect_near(pass.run(Engine::cuda, mask, true, options), expected, dtype);
          expect_near(pass.run(Engine::cuda, mask, false, options), expected, dtype);
        }
      }
    }
  }
}

TEST_F(HopperTest, softcap_and_dropout_agree_with_cuda_simple) {
  const Pass::Sizes s{2, 4, 2, 200, 333, 128};
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Pass pass(s, dtype);
    for (const AttendOptions& options :
         {AttendOptions{.softcap = 2.0}, AttendOptions{.dropout = 0.3, .seed = 11},
          AttendOptions{.softcap = 30.0, .dropout = 0.1, .seed = 5}}) {
      for (const Mask& mask : {Mask(), causal() & lengths({333, 250}, {200, 120})}) {
        SCOPED_TRACE(format_text("{} softcap {} dropout {} {}", name(dtype),
                                 options.softcap.value_or(0), options.dropout, mask.to_string()));
        const PassNumbers expected = pass.run(Engine::cuda_simple, mask, true, options);
        expect_near(pass.run(Engine::cuda, mask, true, options), expected, dtype);
      }
    }
  }
}

// The numbers are the CPU's: other draws would drop other weights, and the results have nothing in
// common.
TEST_F(HopperTest, dropout_drops_what_the_cpu_drops) {
  for (const dim_t width : {64, 128}) {
    const Pass pass({2, 2, 1, 150, 270, width}, DType::bf16);
    const AttendOptions options{.dropout = 0.5, .seed = 0x123456789ABCDEF};
    const Tensor q = Tensor::copy(pass.q, DType::f32), k = Tensor::copy(pass.k, DType::f32),
                 v = Tensor::copy(pass.v, DType::f32);
    const AttendResult expected = attend(q, k, v, causal(), options);
    const PassNumbers ours = pass.run(Engine::cuda, causal(), true, options);
    EXPECT_LE(relative_difference(ours.context, expected.context), 8e-3);
  }
}

TEST_F(HopperTest, rows_of_any_width_agree_with_cuda_simple) {
  const std::pair<dim_t, dim_t> widths[] = {{1, 1},   {7, 40},   {40, 40},  {48, 64}, {80, 80},
                                            {96, 96}, {64, 128}, {128, 24}, {72, 9},  {128, 64}};
  for (const auto& [width, v_width] : widths) {
    const Pass::Sizes s{2, 4, 2, 130, 150, width, v_width};
    const Pass pass(s, DType::bf16);
    for (const NamedMask& m : masks_by_content(s, DType::bf16)) {
      if (m.name != "all" && m.name != "alibi") continue;
      for (const Mask& mask : {Mask(), causal(), m.mask}) {
        SCOPED_TRACE(format_text("width {}/{} {}", width, v_width, mask.to_string()));
        const PassNumbers expected = pass.run(Engine::cuda_simple, mask);
        expect_near(pass.run(Engine::cuda, mask), expected, DType::bf16);
      }
    }
  }
}

TEST_F(HopperTest, nan_that_a_tensor_or_a_document_hides_reaches_nothing) {
  const Pass::Sizes s{1, 2, 1, 200, 300, 128};
  Tensor dropped = Tensor::zeros({1, 300}, DType::boolean);
  Tensor q_ids = Tensor::zeros({200}, DType::i64), kv_ids = Tensor::zeros({300}, DType::i64);
  Pass dirty(s, DType::bf16);
  for (const dim_t j : {3, 100, 101, 250}) {
    dropped.set({0, j}, 1.0);
    kv_ids.set({j}, 7);
    dirty.k.mutable_view()[0][0][j].fill(kNan);
    dirty.v.mutable_view()[0][0][j].fill(kNan);
  }
  const Pass clean(s, DType::bf16);
  for (const Mask& mask : {drop(dropped), documents(q_ids, kv_ids) & causal()}) {
    const PassNumbers ours = dirty.run(Engine::cuda, mask);
    EXPECT_TRUE(all_finite(ours.context) && all_finite(ours.dq) && all_finite(ours.dk));
    EXPECT_TRUE(all_zero(ours.dk[0][0][100]) && all_zero(ours.dv[0][0][3]));
    expect_near(ours, clean.run(Engine::cuda, mask), DType::bf16);
  }
}

// 1,100 tokens in documents of all lengths, and in none that follow each other: turns are counted
// by tiles that see a block at all.
TEST_F(HopperTest, gradients_under_documents_have_the_same_bits_every_time) {
  const Pass::Sizes s{2, 4, 2, 1100, 1100, 128};
  const Pass pass(s, DType::bf16);
  const AttendOptions options{.softcap = 20.0, .dropout = 0.1, .seed = 3};
  for (const NamedMask& m : masks_by_content(s, DType::bf16)) {
    const PassNumbers first = pass.run(Engine::cuda, m.mask, true, options);
    for (int repeat = 0; repeat < 3; ++repeat) {
      ASSERT_TRUE(same_numbers(pass.run(Engine::cuda, m.mask, true, options), first)) << m.name;
    }
  }
}

// The last queries alone, by cuda_simple, give the same rows; scratch grows with tokens.
TEST_F(HopperTest, a_sequence_of_131072_tokens_needs_memory_for_rows_alone) {
  constexpr dim_t kTokens = 131072, kLast = 64, kWidth = 64;
  const Tensor ids = ids_in_stretches({kTokens}, 5, 1);
  Tensor last_ids = Tensor::copy(ids.slice(0, kTokens - kLast, kTokens));
  Pass all({1, 1, 1, kTokens, kTokens, kWidth}, DType::bf16);
  Pass last({1, 1, 1, kLast, kTokens, kWidth}, DType::bf16);
  last.q = Tensor::copy(all.q.slice(2, kTokens - kLast, kTokens));
  last.k = Tensor::copy(all.k);
  last.v = Tensor::copy(all.v);
  last.dcontext = Tensor::copy(all.dcontext.slice(2, kTokens - kLast, kTokens));
  last.dlse = Tensor::copy(all.dlse.slice(2, kTokens - kLast, kTokens));
  const std::pair<Mask, Mask> masks[] = {
      {causal(), causal()}, {documents(ids) & causal(), documents(last_ids, ids) & causal()}};
  for (const auto& [mask, mask_of_last] : masks) {
    const PassNumbers ours = all.run(Engine::cuda, mask);
    const PassNumbers expected = last.run(Engine::cuda_simple, mask_of_last);
    const auto of_last = [&](const Tensor& t) { return t.slice(2, kTokens - kLast, kTokens); };
    EXPECT_LE(relative_difference(of_last(ours.context), expected.context), 8e-3);
    EXPECT_LE(relative_difference(of_last(ours.dq), expected.dq), 8e-3);
    EXPECT_TRUE(all_finite(ours.dk) && all_finite(ours.dv));
    const Tensor q = there(all.q);
    EXPECT_LE(plan(q, q, q, mask).scratch, std::size_t{64} * kTokens);
  }
}

}  // namespace
}  // namespace cephalo
