#include "cephalo/core/turn.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <vector>

#include "tests/support/tensors.h"

namespace cephalo {
namespace {

TEST(TurnTest, one_writes_or_many_read) {
  Turn turn("Thing");
  std::atomic<int> readers{0};
  std::atomic<int> wrong{0};
  int written = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 2000; ++round) {
        if (t < 2) {
          const std::unique_lock lock(turn);
          if (readers != 0) ++wrong;
          ++written;
        } else {
          const std::shared_lock lock(turn);
          ++readers;
          if (written < 0) ++wrong;
          --readers;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(written, 4000);
}

TEST(TurnTest, a_thread_does_not_wait_for_itself) {
  Turn turn("Thing");
  const auto writes = [&] { const std::unique_lock lock(turn); };
  const auto reads = [&] { const std::shared_lock lock(turn); };
  {
    const std::unique_lock lock(turn);
    const std::string being_changed =
        "Thing: it is being changed and waits for the function that now uses it; use it after that "
        "call";
    EXPECT_EQ(testing::error_of(writes), being_changed);
    EXPECT_EQ(testing::error_of(reads), being_changed);
  }
  {
    const std::shared_lock lock(turn);
    EXPECT_NO_THROW(reads());
    EXPECT_EQ(testing::error_of(writes),
              "Thing: it is being read and waits for the function that now changes it; change it "
              "after that call");
  }
  EXPECT_NO_THROW(writes());
}

#if !defined(__SANITIZE_THREAD__)  // TSan does not follow a fork of a process with threads

constexpr const char* kLeftBehind =
    "Thing: another thread was using it when this process was forked, and that thread is not here "
    "to finish; fork while nobody uses it, or make a new one here";

// Forks while another thread is inside of `holding`. Whether `holds` in the child, which is given
// ten seconds.
bool in_child(const std::function<void(const std::function<void()>&)>& holding,
              const std::function<bool()>& holds) {
  std::atomic<bool> inside{false};
  std::atomic<bool> done{false};
  std::thread other([&] {
    holding([&] {
      inside = true;
      while (!done) std::this_thread::yield();
    });
  });
  while (!inside) std::this_thread::yield();
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);
    _exit(holds() ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  done = true;
  other.join();
  return status == 0;
}

TEST(TurnTest, a_forked_child_is_told_what_another_thread_was_changing) {
  Turn turn("Thing");
  const auto changing = [&](const auto& body) {
    const std::unique_lock lock(turn);
    body();
  };
  EXPECT_TRUE(in_child(changing, [&] {
    return testing::error_of([&] { const std::unique_lock lock(turn); }) == kLeftBehind &&
           testing::error_of([&] { const std::shared_lock lock(turn); }) == kLeftBehind &&
           !turn.lock_unless_left_behind();
  }));
  EXPECT_NO_THROW(std::unique_lock{turn});  // the parent's own goes on
}

TEST(TurnTest, a_forked_child_may_read_what_another_thread_was_reading) {
  Turn turn("Thing");
  const auto reading = [&](const auto& body) {
    const std::shared_lock lock(turn);
    body();
  };
  EXPECT_TRUE(in_child(reading, [&] {
    const auto reads = [&] { const std::shared_lock lock(turn); };
    reads();
    reads();
    return testing::error_of([&] { const std::unique_lock lock(turn); }) == kLeftBehind;
  }));
}

TEST(TurnTest, a_forked_child_uses_what_nobody_did_and_what_it_holds_itself) {
  Turn free("Thing");
  Turn mine("Thing");
  std::unique_lock lock(mine);
  EXPECT_TRUE(in_child([](const auto& body) { body(); },
                       [&] {
                         lock.unlock();
                         for (int round = 0; round < 2; ++round) {
                           const std::unique_lock writes(free);
                           const std::unique_lock again(mine);
                         }
                         // Two threads of the child's wait for each other as anywhere.
                         std::unique_lock held(free);
                         std::thread waits([&] { const std::unique_lock later(free); });
                         held.unlock();
                         waits.join();
                         return true;
                       }));
}

#endif

}  // namespace
}  // namespace cephalo
