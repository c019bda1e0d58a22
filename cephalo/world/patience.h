#pragma once

// Inside the library only.
#include <chrono>

namespace cephalo {

// How a process waits for another: it looks at once, then after others had the core, then after
// naps. There may be more processes than cores, and one that spins keeps off the one that it waits
// for.
class Patience {
 public:
  explicit Patience(double timeout) : timeout_(timeout), begin_(Clock::now()) {}

  void nap() const;                              // between two looks
  bool is_out() const;                           // after the timeout; 0: never
  [[noreturn]] void give_up(int awaited) const;  // an error that names the process
  void begin_again() { begin_ = Clock::now(); }  // something has come

 private:
  using Clock = std::chrono::steady_clock;
  double timeout_;
  Clock::time_point begin_;
};

}  // namespace cephalo
