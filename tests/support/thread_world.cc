#include "tests/support/thread_world.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <tuple>

namespace cephalo::testing {
namespace {

// What one process sends another under one tag: the message of a number is for the receive of that
// number, as in MPI.
struct Lane {
  int sent = 0;
  int expected = 0;
  std::map<int, std::vector<std::byte>> messages;  // sent and not received yet
};

struct Post {
  Lane& lane(int from, int to, int tag) { return lanes[{from, to, tag}]; }

  std::mutex mutex;
  std::map<std::tuple<int, int, int>, Lane> lanes;
  std::atomic<bool> gone{false};  // a thread has ended by an exception: nobody waits for it
};

class ThreadTransfers : public Transfers {
 public:
  ThreadTransfers(Post& post, int rank, double timeout)
      : Transfers(timeout), post_(post), rank_(rank) {}

  void send(int to, int tag, std::span<const std::byte> bytes) override {
    const std::lock_guard lock(post_.mutex);
    Lane& lane = post_.lane(rank_, to, tag);
    lane.messages[lane.sent++].assign(bytes.begin(), bytes.end());
  }

  void receive(int from, int tag, std::span<std::byte> bytes) override {
    const std::lock_guard lock(post_.mutex);
    Lane& lane = post_.lane(from, rank_, tag);
    expected_.push_back({from, lane.expected++, &lane, bytes});
  }

  bool progress() override {
    if (post_.gone) throw std::runtime_error("another thread has ended");
    const std::lock_guard lock(post_.mutex);
    std::erase_if(expected_, [&](const Expected& each) {
      const auto found = each.lane->messages.find(each.number);
      if (found == each.lane->messages.end()) return false;
      if (found->second.size() != each.bytes.size()) throw std::logic_error("of another size");
      std::copy(found->second.begin(), found->second.end(), each.bytes.begin());
      each.lane->messages.erase(found);
      return true;
    });
    return expected_.empty();
  }

 private:
  struct Expected {
    int from;
    int number;
    Lane* lane;
    std::span<std::byte> bytes;
  };
  int awaited() override { return expected_.front().from; }

  Post& post_;
  int rank_;
  std::vector<Expected> expected_;
};

class ThreadWorld : public World {
 public:
  ThreadWorld(Post& post, int rank, int size) : World(rank, size), post_(post) {}
  int processes_here() const override { return size(); }
  std::unique_ptr<Transfers> transfers() override {
    return std::make_unique<ThreadTransfers>(post_, rank(), timeout());
  }
  void end() override { any(false); }
  void abort(int) override { throw std::runtime_error("aborted"); }

 private:
  Post& post_;
};

}  // namespace

void run_in_threads(int size, const std::function<void(World&)>& body) {
  Post post;
  std::exception_ptr first;
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        ThreadWorld world(post, rank, size);
        body(world);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
        post.gone = true;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace cephalo::testing
