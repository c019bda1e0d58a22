#include "cephalo/core/parallel.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "cephalo/core/team.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

constexpr double kPlenty = 1e9;  // flops: always worth threads

std::vector<int> count_pieces(dim_t pieces) {
  std::vector<int> runs(static_cast<std::size_t>(pieces));
  parallel_for({.pieces = pieces, .flops = kPlenty},
               [&](dim_t piece, std::byte*) { ++runs[static_cast<std::size_t>(piece)]; });
  return runs;
}

TEST(ParallelTest, every_piece_runs_once_for_any_thread_count) {
  for (const int count : {0, 1, 2, 3, 7, 10000}) {
    const UseThreads limit(count);
    for (const dim_t pieces : {0, 1, 2, 100, 5000}) {
      EXPECT_EQ(count_pieces(pieces), std::vector<int>(static_cast<std::size_t>(pieces), 1));
    }
  }
}

TEST(ParallelTest, small_work_stays_in_the_calling_thread) {
  const UseThreads limit(4);
  const auto self = std::this_thread::get_id();
  parallel_for({.pieces = 100, .flops = 1000},
               [&](dim_t, std::byte*) { EXPECT_EQ(std::this_thread::get_id(), self); });
}

TEST(ParallelTest, several_threads_do_take_part) {
  const UseThreads limit(4);
  std::mutex mutex;
  std::set<std::thread::id> seen;
  // A piece waits until somebody else has come, so this ends only with two threads at work.
  parallel_for({.pieces = 2, .flops = kPlenty}, [&](dim_t, std::byte*) {
    for (;;) {
      const std::lock_guard lock(mutex);
      seen.insert(std::this_thread::get_id());
      if (seen.size() == 2) return;
    }
  });
  EXPECT_EQ(seen.size(), 2U);
}

TEST(ParallelTest, scratch_is_aligned_and_each_threads_own) {
  const UseThreads limit(4);
  std::atomic<int> clashes{0};
  parallel_for({.pieces = 200, .flops = kPlenty, .scratch_bytes = 1000},
               [&](dim_t piece, std::byte* scratch) {
                 if (reinterpret_cast<std::uintptr_t>(scratch) % 64 != 0) ++clashes;
                 const auto mark = static_cast<std::byte>(piece);
                 for (int k = 0; k < 1000; ++k) scratch[k] = mark;
                 for (int k = 0; k < 1000; ++k) {
                   if (scratch[k] != mark) ++clashes;
                 }
               });
  EXPECT_EQ(clashes, 0);
}

TEST(ParallelTest, a_nested_region_runs_in_its_callers_thread_with_scratch_of_its_own) {
  const UseThreads limit(3);
  std::atomic<int> wrong{0};
  parallel_for({.pieces = 20, .flops = kPlenty, .scratch_bytes = 64},
               [&](dim_t piece, std::byte* outer) {
                 outer[0] = static_cast<std::byte>(piece);
                 const auto self = std::this_thread::get_id();
                 parallel_for({.pieces = 10, .flops = kPlenty, .scratch_bytes = 64},
                              [&](dim_t, std::byte* inner) {
                                inner[0] = std::byte{0xFF};
                                if (std::this_thread::get_id() != self || inner == outer) ++wrong;
                              });
                 if (outer[0] != static_cast<std::byte>(piece)) ++wrong;
               });
  EXPECT_EQ(wrong, 0);
}

TEST(ParallelTest, an_exception_reaches_the_caller_and_the_pool_lives_on) {
  for (const int count : {1, 2, 5}) {
    const UseThreads limit(count);
    EXPECT_EQ(testing::error_of([] {
                parallel_for({.pieces = 100, .flops = kPlenty}, [](dim_t piece, std::byte*) {
                  if (piece == 50) throw std::runtime_error("piece 50");
                });
              }),
              "piece 50");
    EXPECT_EQ(count_pieces(100), std::vector<int>(100, 1));
  }
}

TEST(ParallelTest, any_number_of_callers_at_once) {
  std::vector<std::thread> callers;
  std::atomic<int> wrong{0};
  for (int c = 0; c < 16; ++c) {
    callers.emplace_back([&, c] {
      const UseThreads limit(c % 4 + 1);
      for (int round = 0; round < 50; ++round) {
        if (count_pieces(64) != std::vector<int>(64, 1)) ++wrong;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

#if !defined(__SANITIZE_THREAD__)  // TSan does not follow a fork of a process with threads
TEST(ParallelTest, a_forked_child_starts_a_pool_of_its_own) {
  const UseThreads limit(3);
  count_pieces(1000);  // the parent's workers are up
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(count_pieces(1000) == std::vector<int>(1000, 1) ? 0 : 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}
#endif

// Six threads of its own for each region, as another library's runtime might have.
std::atomic<int> team_runs{0};
void run_six(void (*body)(void*), void* context) {
  ++team_runs;
  std::vector<std::thread> others;
  for (int n = 1; n < 6; ++n) others.emplace_back(body, context);
  body(context);
  for (std::thread& other : others) other.join();
}

class TeamTest : public ::testing::Test {
 protected:
  TeamTest() {
    team_runs = 0;
    set_team(run_six);
  }
  ~TeamTest() override { set_team(nullptr); }
};

TEST_F(TeamTest, every_piece_runs_once_with_more_and_fewer_threads_than_asked_for) {
  for (const int count : {2, 6, 40}) {
    const UseThreads limit(count);
    for (const dim_t pieces : {2, 3, 5000}) {
      EXPECT_EQ(count_pieces(pieces), std::vector<int>(static_cast<std::size_t>(pieces), 1));
    }
  }
  EXPECT_EQ(team_runs, 9);
}

TEST_F(TeamTest, each_thread_has_scratch_of_its_own) {
  const UseThreads limit(3);
  std::mutex mutex;
  std::set<std::byte*> seen;
  std::atomic<int> together{0}, most{0};
  parallel_for({.pieces = 64, .flops = kPlenty, .scratch_bytes = 100},
               [&](dim_t, std::byte* scratch) {
                 const int now = ++together;
                 for (int old = most; old < now && !most.compare_exchange_weak(old, now);) {
                 }
                 std::this_thread::yield();
                 --together;
                 const std::lock_guard lock(mutex);
                 seen.insert(scratch);
               });
  EXPECT_LE(seen.size(), 3U);  // no more threads than were asked for
  EXPECT_LE(most, 3);
}

TEST_F(TeamTest, little_work_and_nested_regions_do_not_ask_it) {
  const UseThreads limit(4);
  parallel_for({.pieces = 100, .flops = 1000}, [](dim_t, std::byte*) {});
  EXPECT_EQ(team_runs, 0);
  parallel_for({.pieces = 4, .flops = kPlenty}, [](dim_t, std::byte*) { count_pieces(10); });
  EXPECT_EQ(team_runs, 1);
}

TEST_F(TeamTest, an_exception_reaches_the_caller) {
  const UseThreads limit(4);
  EXPECT_EQ(testing::error_of([] {
              parallel_for({.pieces = 100, .flops = kPlenty}, [](dim_t piece, std::byte*) {
                if (piece == 50) throw std::runtime_error("piece 50");
              });
            }),
            "piece 50");
  EXPECT_EQ(count_pieces(100), std::vector<int>(100, 1));
}

#if !defined(__SANITIZE_THREAD__)
TEST_F(TeamTest, a_forked_child_computes_without_it) {
  const UseThreads limit(3);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const bool right = count_pieces(1000) == std::vector<int>(1000, 1);
    _exit(right && team_runs == 0 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}
#endif

TEST(ParallelTest, thread_counts_are_checked) {
  EXPECT_EQ(testing::error_of([] { set_threads(-1); }),
            "set_threads: count (-1) must be >= 0; 0 means one per core");
  set_threads(1000000);
  EXPECT_EQ(threads(), kMaxThreads);
  set_threads(0);
  EXPECT_GE(threads(), 1);
}

}  // namespace
}  // namespace cephalo
