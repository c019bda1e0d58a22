#include <gtest/gtest.h>

#include <string>
#include <tuple>

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

}  // namespace
}  // namespace cephalo
