// Every part of a mask alone and in pairs, at lengths from 1 to 4,097, on a GPU: forward and
// backward against cuda_simple in float64, which combinations_test.cc holds against the CPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "cephalo/core/format.h"
#include "cephalo/core/random.h"
#include "tests/attention/cuda/pass.h"
#include "tests/support/mask_spec.h"

namespace cephalo {
namespace {

using namespace testing;  // NOLINT: passes and their numbers are what this is about

constexpr dim_t kLengths[] = {1, 97, 257, 1025, 4097};
constexpr DType kTypes[] = {DType::bf16, DType::f16, DType::f32};
constexpr dim_t kWidths[] = {64, 128, 40, 256};
constexpr std::size_t kSlices = 16;  // of a test each, so that they can run at once

class CudaLengthsTest : public ::testing::TestWithParam<std::size_t> {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "there is no GPU";
  }
};
INSTANTIATE_TEST_SUITE_P(Slices, CudaLengthsTest, ::testing::Range(std::size_t{0}, kSlices));

struct Case {
  Pass::Sizes sizes;
  DType dtype;
  std::vector<std::string> parts;
};

// Types and widths take turns, each at its own pace. Long ones have fewer heads, and in pairs of
// parts one long side.
Case case_of(std::size_t number, const std::vector<std::string>& parts) {
  const dim_t length = kLengths[number % std::size(kLengths)];
  const bool is_long = length > 1000, is_pair = parts.size() > 1;
  Case c;
  c.dtype = kTypes[(number + number / std::size(kLengths)) % std::size(kTypes)];
  const dim_t width = kWidths[number / 3 % std::size(kWidths)];
  const dim_t q_tokens = is_long && is_pair && number % 2 == 0 ? 257 : length;
  const dim_t kv_tokens = is_long && is_pair && number % 2 == 1 ? 257 : length;
  c.sizes = {is_long ? 1 : 2,
             length > 4000 ? 1 : 4,
             length > 4000 ? 1 : 2,
             q_tokens,
             kv_tokens,
             c.dtype == DType::f32 ? std::min<dim_t>(width, 128) : width};
  c.parts = parts;
  return c;
}

void check(const Case& c, const Mask& mask) {
  const Pass pass(c.sizes, c.dtype);
  const PassNumbers exact = Pass(pass, DType::f64).run(Engine::cuda_simple, mask);
  const PassNumbers simple = pass.run(Engine::cuda_simple, mask);
  if (c.dtype != DType::f32) expect_near(simple, exact, c.dtype);
  if (!is_hopper()) return;
  const Tensor q = there(pass.q), k = there(pass.k), v = there(pass.v);
  const Plan made = plan(q, k, v, mask_on_gpu(mask));
  EXPECT_EQ(made.engine, Engine::cuda) << made.to_string();
  const PassNumbers ours = pass.run(Engine::cuda, mask);
  if (c.dtype == DType::f32) {
    expect_as_accurate_as_float32(ours, simple, exact);
  } else {
    expect_near(ours, exact, c.dtype);
  }
}

TEST_P(CudaLengthsTest, every_part_of_a_mask_alone_and_in_pairs_at_every_length) {
  const auto combinations = mask_combinations();
  const std::size_t count = combinations.size() * std::size(kLengths);
  for (std::size_t number = GetParam(); number < count; number += kSlices) {
    const Case c = case_of(number, combinations[number / std::size(kLengths)]);
    const Pass::Sizes& s = c.sizes;
    TorchGenerator generator(number);
    const MaskSpec spec =
        make_mask_spec(c.parts, {s.batch, s.heads, s.q_tokens, s.kv_tokens}, generator);
    SCOPED_TRACE(format_text("case {}: {} width {} tokens {}/{} {}", number, name(c.dtype), s.width,
                             s.q_tokens, s.kv_tokens, spec.name));
    check(c, spec.mask);
  }
}

}  // namespace
}  // namespace cephalo
