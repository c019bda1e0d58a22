// Tiles of the backward pass on Hopper: a block of the grid takes several, one after the other; the
// first that adds to a block of dq stores it, and nobody clears it.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "cephalo/core/format.h"
#include "tests/attention/cuda/masks.h"
#include "tests/attention/cuda/pass.h"

namespace cephalo {
namespace {

using namespace testing;  // NOLINT: passes and their numbers are what this is about

// Of the second sequence, whose queries and keys end early, some tiles see nothing.
std::vector<std::pair<Mask, AttendOptions>> cases_of(const Pass::Sizes& s) {
  const std::vector<dim_t> kv_len = {s.kv_tokens, 130}, q_len = {s.q_tokens, 90};
  const std::vector<float> slopes(static_cast<std::size_t>(s.heads), 0.3F);
  const Tensor kv_ids = ids_in_stretches({s.kv_tokens}, 5, 1);
  const Mask by_document = documents(kv_ids.slice(0, 0, s.q_tokens), kv_ids);
  return {{Mask(), {}},
          {causal(), {}},
          {window(70, 0), {}},
          {lengths(kv_len, q_len), {}},
          {lengths(kv_len, q_len) & causal(), {.softcap = 9.0}},
          {by_document & causal(), {}},
          {alibi(slopes) & by_document & lengths(kv_len), {}},
          {bias(normal({1, s.heads, s.q_tokens, s.kv_tokens}, 12, DType::bf16)), {}},
          {causal(), {.dropout = 0.2, .seed = 5}},
          {causal(), {.softcap = 9.0, .dropout = 0.2, .seed = 5}}};
}

// 240 tiles, and on any Hopper far fewer multiprocessors.
TEST_F(HopperTest, more_tiles_than_multiprocessors_agree_with_cuda_simple) {
  for (const dim_t width : {64, 128}) {
    const Pass::Sizes s{2, 80, 40, 150, 264, width};
    const Pass pass(s, DType::bf16);
    for (const auto& [mask, options] : cases_of(s)) {
      SCOPED_TRACE(format_text("width {} {} softcap {} dropout {}", width, mask.to_string(),
                               options.softcap.value_or(0), options.dropout));
      const PassNumbers expected = pass.run(Engine::cuda_simple, mask, true, options);
      const PassNumbers by_turns = pass.run(Engine::cuda, mask, true, options);
      expect_near(by_turns, expected, DType::bf16);
      expect_near(pass.run(Engine::cuda, mask, false, options), expected, DType::bf16);
      for (int repeat = 0; repeat < 2; ++repeat) {
        ASSERT_TRUE(same_numbers(pass.run(Engine::cuda, mask, true, options), by_turns));
      }
    }
  }
}

// The scratch of a pass in which all queries had gradients is taken again by one in which whole
// blocks of them see nothing.
TEST_F(HopperTest, queries_that_see_nothing_have_no_gradient_whatever_memory_held) {
  for (const dim_t width : {64, 128}) {
    const Pass pass({1, 2, 1, 1024, 1024, width}, DType::bf16);
    Tensor ids = Tensor::zeros({1024}, DType::i64);
    for (dim_t i = 300; i < 1024; ++i) ids.set({i}, -1);
    for (const Mask& mask : {lengths({1024}, {300}), documents(ids) & causal()}) {
      pass.run(Engine::cuda, causal());
      const PassNumbers ours = pass.run(Engine::cuda, mask);
      for (dim_t h = 0; h < 2; ++h) {
        EXPECT_TRUE(all_zero(ours.dq[0][h].slice(0, 300, 1024))) << width << mask.to_string();
        EXPECT_FALSE(all_zero(ours.dq[0][h].slice(0, 299, 300)));
      }
    }
  }
}

}  // namespace
}  // namespace cephalo
