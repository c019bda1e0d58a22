#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "cephalo/core/shape.h"

// What this machine gives at most, measured through the library's own threads: as many as
// cephalo::threads() says.
namespace cephalo::cli {

enum class Pages { small, huge };

// Memory in pages of a known size, as far as the system lets us choose; all ones.
class PagedMemory {
 public:
  PagedMemory(std::size_t bytes, Pages pages);
  ~PagedMemory();
  PagedMemory(const PagedMemory&) = delete;
  PagedMemory& operator=(const PagedMemory&) = delete;

  float* data() { return data_; }
  std::span<const float> floats() const { return {data_, bytes_ / sizeof(float)}; }

 private:
  std::size_t bytes_;
  void* mapped_ = nullptr;
  float* data_ = nullptr;
};

double seconds_of(const std::function<void()>& work);

// The shortest of as many calls as fit into `budget` seconds, at least three after one untimed.
double best_seconds(const std::function<void()>& work, double budget);

// Multiplications and additions a second that never leave the registers.
double fma_rate(double budget);

// Bytes a second when every thread reads all of it again and again: from the cache that holds it.
double cached_read_rate(std::span<const float> memory, double budget);

// The threads share it out and read it once; `ahead` asks the cache for what comes.
void read_once(const std::vector<std::span<const float>>& parts, bool ahead);
double read_rate(const std::vector<std::span<const float>>& parts, double budget);

double bytes_of(const std::vector<std::span<const float>>& parts);

}  // namespace cephalo::cli
