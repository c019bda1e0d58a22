#include "cephalo/core/turn.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <cstddef>

#include "cephalo/core/fail.h"

namespace cephalo {
namespace {

// The parts of a state, from the lowest bit on: readers, one writer, number of the process.
constexpr std::uint32_t kWriter = std::uint32_t{1} << 19;
constexpr std::uint32_t kReaders = kWriter - 1;
constexpr std::uint32_t kNextProcess = kWriter << 1;
constexpr std::uint32_t kProcess = ~(kWriter | kReaders);

constexpr const char* kChanging =
    "it is being changed and waits for the function that now uses it; use it after that call";
constexpr const char* kReading =
    "it is being read and waits for the function that now changes it; change it after that call";
constexpr const char* kLeftBehind =
    "another thread was using it when this process was forked, and that thread is not here to "
    "finish; fork while nobody uses it, or make a new one here";

// How many forks this process is away from the first one, in the bits of kProcess.
std::atomic<std::uint32_t> this_process{0};
// When the library is loaded: a function's static could be half made at the fork itself.
[[maybe_unused]] const int registered =
    pthread_atfork(nullptr, nullptr, [] { this_process += kNextProcess; });

bool is_left_behind(std::uint32_t state) {
  return state != 0 && (state & kProcess) != this_process.load(std::memory_order_relaxed);
}

// What this thread holds. Calls within calls go a few deep; of what lies deeper than this nobody
// knows, and a thread that waits for itself there waits.
struct Held {
  struct Entry {
    const Turn* turn;
    bool writes;
  };
  std::array<Entry, 32> entries;
  std::size_t count;

  Entry* find(const Turn* turn) {
    Entry* end = entries.data() + count;
    Entry* found = std::find_if(entries.data(), end, [&](auto& e) { return e.turn == turn; });
    return found == end ? nullptr : found;
  }
  void add(const Turn* turn, bool writes) {
    if (count < entries.size()) entries[count++] = {turn, writes};
  }
  void remove(const Turn* turn) {
    if (Entry* found = find(turn)) *found = entries[--count];
  }
};
thread_local Held held;

// WebAssembly is built without threads: there is nobody to wait for.
#if defined(__EMSCRIPTEN__)
void wait_for_change(std::atomic<std::uint32_t>&, std::uint32_t) {}
void tell_waiting(std::atomic<std::uint32_t>&) {}
#else
void wait_for_change(std::atomic<std::uint32_t>& state, std::uint32_t seen) {
  state.wait(seen);
}
void tell_waiting(std::atomic<std::uint32_t>& state) {
  state.notify_all();
}
#endif

}  // namespace

void Turn::refuse(const char* reason) const {
  fail(Error::Kind::value, "{}: {}", what_, reason);
}

bool Turn::lock_unless_left_behind() {
  if (const auto* mine = held.find(this)) refuse(mine->writes ? kChanging : kReading);
  for (;;) {
    std::uint32_t seen = 0;
    if (state_.compare_exchange_strong(seen, this_process | kWriter)) break;
    if (is_left_behind(seen)) return false;
    wait_for_change(state_, seen);
  }
  held.add(this, true);
  return true;
}

void Turn::lock() {
  if (!lock_unless_left_behind()) refuse(kLeftBehind);
}

void Turn::unlock() {
  held.remove(this);
  state_ = 0;
  tell_waiting(state_);
}

void Turn::lock_shared() {
  const auto* mine = held.find(this);
  if (mine != nullptr && mine->writes) refuse(kChanging);
  std::uint32_t seen = state_;
  for (;;) {
    if ((seen & kWriter) != 0) {
      if (is_left_behind(seen)) refuse(kLeftBehind);
      wait_for_change(state_, seen);
      seen = state_;
    } else if (state_.compare_exchange_weak(seen, (seen == 0 ? this_process.load() : seen) + 1)) {
      break;
    }
  }
  held.add(this, false);
}

void Turn::unlock_shared() {
  held.remove(this);
  std::uint32_t seen = state_;
  std::uint32_t left = 0;
  do {
    left = (seen & kReaders) == 1 ? 0 : seen - 1;
  } while (!state_.compare_exchange_weak(seen, left));
  if (left == 0) tell_waiting(state_);
}

}  // namespace cephalo
