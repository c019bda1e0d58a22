#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "cephalo/model/gpt_memory.h"
#include "tests/model/spread_claims.h"
#include "tests/support/thread_world.h"

namespace cephalo {
namespace {

using Claim = std::pair<std::string, testing::WorldClaim>;
class SpreadTest : public ::testing::TestWithParam<std::tuple<Claim, int>> {};

TEST_P(SpreadTest, holds) {
  testing::run_in_threads(std::get<1>(GetParam()), std::get<0>(GetParam()).second);
}

INSTANTIATE_TEST_SUITE_P(Threads, SpreadTest,
                         ::testing::Combine(::testing::ValuesIn(testing::spread_claims()),
                                            ::testing::Values(1, 2, 3, 4)),
                         [](const auto& each) {
                           return std::get<0>(each.param).first + "_" +
                                  std::to_string(std::get<1>(each.param));
                         });

TEST(SpreadMemoryTest, a_process_has_its_share_of_a_pass_and_a_ring_besides) {
  const GptOptions options{
      .vocab_size = 64, .context_length = 65536, .d_model = 32, .num_heads = 2, .num_layers = 2};
  const auto pass = [&](int processes) {
    return static_cast<double>(memory_bytes(options, 1, 65536, processes).pass);
  };
  EXPECT_GT(pass(16), pass(1) / 16);
  EXPECT_LT(pass(16), 1.5 * pass(1) / 16);
  EXPECT_EQ(memory_bytes(options, 1, 65536, 2).gradients,
            2 * memory_bytes(options, 1, 65536).gradients);
}

}  // namespace
}  // namespace cephalo
