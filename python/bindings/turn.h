#pragma once

#include <atomic>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <thread>

#include "cephalo/core/error.h"

namespace cephalo::python {

// A shared mutex that refuses where it would wait for itself: the thread that changes an object
// calls back into Python, and the callback uses that object.
class Turn {
 public:
  explicit Turn(const char* what) : what_(what) {}

  void lock() {
    refuse_owner();
    mutex_.lock();
    owner_ = std::this_thread::get_id();
  }
  void unlock() {
    owner_ = std::thread::id();
    mutex_.unlock();
  }
  void lock_shared() {
    refuse_owner();
    mutex_.lock_shared();
  }
  void unlock_shared() { mutex_.unlock_shared(); }

 private:
  void refuse_owner() const {
    if (owner_.load() != std::this_thread::get_id()) return;
    throw Error(Error::Kind::value, std::string(what_) +
                                        ": it is being changed and waits for the function that now "
                                        "uses it; use it after that call");
  }

  const char* what_;
  std::shared_mutex mutex_;
  std::atomic<std::thread::id> owner_{};
};

// Unlocked while it lives: a function of the caller's may use the object meanwhile.
template <typename Lock>
class Unlocked {
 public:
  explicit Unlocked(Lock& lock) : lock_(lock) { lock_.unlock(); }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;
  ~Unlocked() { lock_.lock(); }

 private:
  Lock& lock_;
};

}  // namespace cephalo::python
