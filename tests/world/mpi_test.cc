// Claims about worlds in one of processes: mpirun -n 3 mpi_tests.
#include <gtest/gtest.h>

#include <cstdio>

#include "cephalo/world/world.h"
#include "tests/attention/ring/ring_claims.h"
#include "tests/model/spread_claims.h"
#include "tests/world/world_claims.h"

namespace cephalo {
namespace {

World* all_processes = nullptr;

class MpiTest : public ::testing::TestWithParam<std::pair<std::string, testing::WorldClaim>> {};

TEST_P(MpiTest, holds) {
  GetParam().second(*all_processes);
}

INSTANTIATE_TEST_SUITE_P(World, MpiTest, ::testing::ValuesIn(testing::world_claims()),
                         [](const auto& claim) { return claim.param.first; });
INSTANTIATE_TEST_SUITE_P(Ring, MpiTest, ::testing::ValuesIn(testing::ring_claims()),
                         [](const auto& claim) { return claim.param.first; });
INSTANTIATE_TEST_SUITE_P(Spread, MpiTest, ::testing::ValuesIn(testing::spread_claims()),
                         [](const auto& claim) { return claim.param.first; });

}  // namespace
}  // namespace cephalo

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const auto world = cephalo::open_world();
  cephalo::all_processes = world.get();
  const bool failed = world->any(RUN_ALL_TESTS() != 0);
  if (world->rank() == 0) std::printf("a world of %d processes\n", world->size());
  world->end();
  return failed ? 1 : 0;
}
