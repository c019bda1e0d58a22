// The kernels for Hopper against cuda_simple, which passes the one suite of all engines: lengths,
// widths, types and masks by position, what is hidden, layouts, bits and streams.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cephalo/core/format.h"
#include "cephalo/core/views.h"
#include "tests/attention/cuda/masks.h"
#include "tests/attention/cuda/pass.h"

namespace cephalo {
namespace {

using namespace testing;  // NOLINT: passes and their numbers are what this is about

TEST_F(HopperTest, every_length_width_type_and_mask_agrees_with_cuda_simple) {
  const Pass::Sizes sizes[] = {{1, 2, 2, 1, 1, 0},       {2, 4, 2, 97, 97, 0},
                               {1, 2, 1, 257, 97, 0},    {2, 2, 2, 97, 257, 0},
                               {1, 2, 1, 1025, 1025, 0}, {1, 1, 1, 33, 515, 0}};
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const dim_t width : {64, 128}) {
      for (Pass::Sizes s : sizes) {
        s.width = width;
        const Pass pass(s, dtype);
        for (const Mask& mask : masks_by_position(s.batch, s.q_tokens, s.kv_tokens)) {
          SCOPED_TRACE(format_text("{} width {} batch {} heads {}/{} tokens {}/{} {}", name(dtype),
                                   width, s.batch, s.heads, s.kv_heads, s.q_tokens, s.kv_tokens,
                                   mask.to_string()));
          const PassNumbers expected = pass.run(Engine::cuda_simple, mask);
          expect_near(pass.run(Engine::cuda, mask), expected, dtype);
          expect_near(pass.run(Engine::cuda, mask, false), expected, dtype);
        }
      }
    }
  }
}

TEST_F(HopperTest, scores_that_climb_by_hundreds_are_followed) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const dim_t width : {64, 128}) {
      Pass pass({1, 2, 2, 300, 1100, width}, dtype);
      for (dim_t h = 0; h < 2; ++h) {
        for (dim_t i = 0; i < 300; ++i) pass.q.mutable_view()[0][h][i].fill(0.5);
        for (dim_t j = 0; j < 1100; ++j) {
          pass.k.mutable_view()[0][h][j].fill(static_cast<double>(1100 - j) * 0.1);
        }
      }
      const Tensor gq = there(pass.q), gk = there(pass.k), gv = there(pass.v);
      AttendOptions options{.return_lse = true, .engine = Engine::cuda};
      const AttendResult ours = attend(gq, gk, gv, {}, options);
      options.engine = Engine::cuda_simple;
      const AttendResult expected = attend(gq, gk, gv, {}, options);
      EXPECT_LE(relative_difference(back(ours.context), back(expected.context)), 8e-3);
      EXPECT_LE(relative_difference(back(ours.lse), back(expected.lse)), 1e-5);
    }
  }
}

TEST_F(HopperTest, nan_in_what_is_hidden_reaches_nothing) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const dim_t width : {64, 128}) {
      const Pass clean({2, 2, 1, 200, 300, width}, dtype);
      const Mask mask = lengths({300, 170}, {200, 90}) & causal();
      const PassNumbers expected = clean.run(Engine::cuda, mask);
      Pass dirty({2, 2, 1, 200, 300, width}, dtype);
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
}

// Key 120 is seen by the queries from 120 on alone, though they share its tile with others.
TEST_F(HopperTest, nan_that_some_queries_see_reaches_those_alone) {
  Pass pass({1, 1, 1, 200, 200, 128}, DType::bf16);
  pass.v.mutable_view()[0][0][120].fill(kNan);
  const PassNumbers ours = pass.run(Engine::cuda, causal());
  const PassNumbers expected = pass.run(Engine::cuda_simple, causal());
  EXPECT_TRUE(all_finite(ours.context[0][0].slice(0, 0, 120)));
  EXPECT_TRUE(all_finite(ours.dq[0][0].slice(0, 0, 120)));
  for (dim_t i = 120; i < 200; ++i) EXPECT_TRUE(std::isnan(ours.context.at({0, 0, i, 5}))) << i;
  expect_near(ours, expected, DType::bf16);
}

TEST_F(HopperTest, values_near_the_largest_number_do_not_overflow) {
  Pass pass({1, 1, 1, 64, 400, 64}, DType::bf16);
  for (dim_t j = 0; j < 400; ++j) pass.v.mutable_view()[0][0][j].fill(1e37);
  const Tensor gq = there(pass.q), gk = there(pass.k), gv = there(pass.v);
  const Tensor context = back(attend(gq, gk, gv, {}, {.engine = Engine::cuda}).context);
  EXPECT_NEAR(context.at({0, 0, 3, 7}) / 1e37, 1.0, 1e-2);
}

// Heads beside each other in a row of tokens, and rows that begin at odd addresses.
TEST_F(HopperTest, layouts_do_not_change_a_bit) {
  const Pass pass({2, 4, 4, 130, 130, 64}, DType::bf16);
  const PassNumbers expected = pass.run(Engine::cuda, causal());
  const Tensor q = there(Tensor::copy(transpose(pass.q, 1, 2)));
  const Tensor k = there(Tensor::copy(transpose(pass.k, 1, 2)));
  Tensor wide = Tensor::zeros({2, 4, 130, 67}, DType::bf16);
  wide.mutable_view().slice(3, 1, 65).copy_from(pass.v);
  const Tensor v = there(wide);
  Tensor context = Tensor::empty({2, 130, 4, 64}, DType::bf16, kGpu);
  attend_into({MutableTensorView(context.mutable_view().mutable_data(), DType::bf16,
                                 {2, 4, 130, 64}, {130 * 4 * 64, 64, 4 * 64, 1}, kGpu)},
              transpose(q, 1, 2), transpose(k, 1, 2), v.slice(3, 1, 65), causal(),
              {.engine = Engine::cuda});
  const Tensor merged = back(context);
  const Tensor result = Tensor::copy(transpose(merged, 1, 2));
  EXPECT_TRUE(same_bits(result, expected.context));
}

TEST_F(HopperTest, gradients_by_turns_have_the_same_bits_every_time) {
  for (const dim_t width : {64, 128}) {
    const Pass pass({1, 4, 2, 2048, 2048, width}, DType::bf16);
    for (const Mask& mask : {Mask(), causal(), window(500, 100)}) {
      const PassNumbers first = pass.run(Engine::cuda, mask);
      for (int repeat = 0; repeat < 250; ++repeat) {
        ASSERT_TRUE(same_numbers(pass.run(Engine::cuda, mask), first)) << mask.to_string();
      }
    }
  }
}

// Eight streams at once: nothing of a call is shared with another.
TEST_F(HopperTest, streams_do_not_disturb_each_other) {
  constexpr int kStreams = 8;
  const Pass pass({1, 4, 4, 1000, 1000, 128}, DType::bf16);
  const PassNumbers expected = pass.run(Engine::cuda, causal());
  const Tensor q = there(pass.q), k = there(pass.k), v = there(pass.v);
  std::vector<cudaStream_t> streams(kStreams);
  std::vector<AttendResult> results(kStreams);
  for (cudaStream_t& stream : streams) {
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  }
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  for (int repeat = 0; repeat < 10; ++repeat) {
    for (int n = 0; n < kStreams; ++n) {
      results[static_cast<std::size_t>(n)] =
          attend(q, k, v, causal(),
                 {.engine = Engine::cuda, .stream = streams[static_cast<std::size_t>(n)]});
    }
  }
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  for (const AttendResult& r : results) EXPECT_TRUE(same_bits(back(r.context), expected.context));
  results.clear();
  for (cudaStream_t& stream : streams) cudaStreamDestroy(stream);
}

// Another library may take the GPU's context away from a thread, and tensors are freed anywhere.
TEST_F(HopperTest, a_thread_without_a_context_attends_and_gives_memory_back) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  ASSERT_EQ(cudaGetDriverEntryPointByVersion("cuCtxSetCurrent", &function, 4000, cudaEnableDefault,
                                             &found),
            cudaSuccess);
  const auto leave_context = [&] { return reinterpret_cast<int (*)(void*)>(function)(nullptr); };
  const Pass pass({1, 2, 2, 100, 100, 64}, DType::bf16);
  const PassNumbers expected = pass.run(Engine::cuda, causal());
  ASSERT_EQ(leave_context(), 0);
  EXPECT_TRUE(same_numbers(pass.run(Engine::cuda, causal()), expected));
  std::thread([&, owned = there(pass.q)]() mutable {
    EXPECT_EQ(leave_context(), 0);
    const Tensor freed = std::move(owned);
  }).join();
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_TRUE(same_numbers(pass.run(Engine::cuda, causal()), expected));
}

TEST_F(HopperTest, what_it_refuses_goes_to_cuda_simple_and_plan_says_why) {
  const auto reason = [&](dim_t width, DType dtype) {
    const Tensor q = there(normal({1, 2, 20, width}, 1, dtype));
    const Plan made = plan(q, q, q);
    EXPECT_EQ(made.engine, Engine::cuda_simple);
    return made.to_string();
  };
  const auto refuses = [](const std::string& text, const char* why) {
    EXPECT_NE(text.find(format_text("cuda refuses: {}", why)), std::string::npos) << text;
  };
  refuses(reason(64, DType::f64), "q is neither float32, bfloat16 nor float16");
  refuses(reason(257, DType::bf16), "head_dim is over 256");
  refuses(reason(129, DType::f32), "head_dim or v_dim of float32 is over 128");
}

}  // namespace
}  // namespace cephalo
