#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace cephalo::cli {

// How far a work has come, on one line of stderr: only where a person looks, only once it has taken
// a while, and wiped out at its end.
class ProgressBar {
 public:
  explicit ProgressBar(std::string what)
      : what_(std::move(what)), begin_(std::chrono::steady_clock::now()) {}

  void show(std::size_t done, std::size_t all);

 private:
  std::string what_;  // "heads"
  std::chrono::steady_clock::time_point begin_;
  std::chrono::steady_clock::time_point last_ = {};
};

}  // namespace cephalo::cli
