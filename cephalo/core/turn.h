#pragma once

#include <atomic>
#include <cstdint>

#pragma GCC visibility push(default)
namespace cephalo {

// A shared mutex for std::unique_lock and std::shared_lock that never waits for what cannot come:
// - Its own thread. A call that holds the object runs a callback that uses it.
// - A thread of another process. A forked child has the forking thread alone; what the others held
//   stays held there for ever, and what they were changing stays half changed.
// Either is an error that names the object. What they only read can be read in the child as well.
// Readers come before writers, so a thread may read what it is reading already.
class Turn {
 public:
  explicit Turn(const char* what) : what_(what) {}  // what: "KVCache", as in messages
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  void lock();
  void unlock();
  void lock_shared();
  void unlock_shared();

  // lock(), but false instead of the error about a fork: for what can do without the object.
  bool lock_unless_left_behind();

 private:
  [[noreturn]] void refuse(const char* reason) const;

  const char* what_;
  // 0: free. Else how many read, or that one writes, and the process that the first of them is in:
  // one word, so that no fork ever finds it half written.
  std::atomic<std::uint32_t> state_{0};
};

}  // namespace cephalo
#pragma GCC visibility pop
