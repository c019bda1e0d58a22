#pragma once

#include <mutex>
#include <shared_mutex>

#include "cephalo/core/turn.h"

namespace cephalo::python {

// Runs a function of the caller's while `lock` is open, so that it may use the object meanwhile. To
// lock again can be an error itself, which then takes the place of the function's.
template <typename Lock, typename Body>
void while_open(Lock& lock, const Body& body) {
  lock.unlock();
  try {
    body();
  } catch (...) {
    lock.lock();
    throw;
  }
  lock.lock();
}

}  // namespace cephalo::python
