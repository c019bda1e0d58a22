#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>

namespace cephalo {

// The system's calls by which AtomicFile makes a file durable. Tests put others in their place: a
// disk that fails in the middle of a sync, or that loses power, cannot be had otherwise.
struct FileCalls {
  std::function<ssize_t(int, const void*, std::size_t)> write;
  std::function<int(int)> sync;
  std::function<int(int)> close;
  std::function<int(const char*, const char*)> rename;
  std::function<int(const char*, const char*)> link;
};

// The table in use. It is changed by tests alone, while nobody writes.
FileCalls& file_calls();

}  // namespace cephalo
