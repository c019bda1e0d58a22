#include "cephalo/world/world.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/support/tensors.h"
#include "tests/support/thread_world.h"
#include "tests/world/world_claims.h"

namespace cephalo {
namespace {

using testing::error_of;
using testing::run_in_threads;
using testing::world_claims;

// The variables of a launcher while an object lives.
class Launched {
 public:
  Launched(const char* rank, const char* size) {
    setenv("PMI_RANK", rank, 1);
    setenv("PMI_SIZE", size, 1);
  }
  ~Launched() {
    unsetenv("PMI_RANK");
    unsetenv("PMI_SIZE");
  }
};

TEST(WorldTest, claims_hold_in_worlds_of_any_size) {
  for (const auto& [name, claim] : world_claims()) {
    SCOPED_TRACE(name);
    for (const int size : {1, 2, 3, 4, 8}) run_in_threads(size, claim);
  }
}

TEST(WorldTest, claims_hold_in_a_world_of_one) {
  const auto world = world_of_one();
  EXPECT_EQ(world->rank(), 0);
  EXPECT_EQ(world->size(), 1);
  EXPECT_EQ(world->processes_here(), 1);
  for (const auto& [name, claim] : world_claims()) {
    SCOPED_TRACE(name);
    claim(*world);
  }
  world->end();
}

TEST(WorldTest, shares_are_neighbours_and_about_equal) {
  for (const dim_t count : {0, 1, 5, 16, 1000}) {
    for (const int size : {1, 2, 3, 7, 16}) {
      dim_t end = 0;
      for (int r = 0; r < size; ++r) {
        const Share share = share_of(count, r, size);
        EXPECT_EQ(share.begin, end);
        EXPECT_LE(share.count(), (count + size - 1) / size);
        EXPECT_GE(share.count(), count / size);
        end = share.end;
      }
      EXPECT_EQ(end, count);
    }
  }
  EXPECT_NE(error_of([] { share_of(5, 3, 3); }), "");
}

TEST(WorldTest, a_launcher_is_known_by_its_variables) {
  EXPECT_EQ(launch_of_this_process().size, 0);
  {
    const Launched launched("2", "4");
    EXPECT_EQ(launch_of_this_process().rank, 2);
    EXPECT_EQ(launch_of_this_process().size, 4);
  }
  for (const char* wrong : {"", "x", "4x", "-1", "0"}) {
    const Launched launched("0", wrong);
    EXPECT_EQ(launch_of_this_process().size, 0) << wrong;
  }
}

TEST(WorldTest, a_process_that_nobody_launched_is_alone) {
  EXPECT_EQ(open_world()->size(), 1);
}

TEST(WorldTest, an_exchange_with_nobody_is_an_error) {
  const auto world = world_of_one();
  std::byte nothing{};
  EXPECT_NE(error_of([&] { world->transfers()->send(1, 0, std::span(&nothing, 1)); }), "");
  EXPECT_NE(error_of([&] { world->broadcast(std::span(&nothing, 1), 1); }), "");
  EXPECT_NE(error_of([&] { world->ring_exchange(std::span(&nothing, 1), {}); }), "");
}

}  // namespace
}  // namespace cephalo
