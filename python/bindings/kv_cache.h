#pragma once

#include <mutex>
#include <shared_mutex>
#include <utility>

#include "cephalo/attention/kv_cache.h"

namespace cephalo::python {

// A cache that calls use while the GIL is released: many readers, or one writer.
struct Cache {
  explicit Cache(KVCache&& cache) : stored(std::move(cache)) {}
  KVCache stored;
  std::shared_mutex turn;
};

// Holds the cache for one call that reads or changes it; nothing to hold is fine.
template <typename Lock>
class CacheTurn {
 public:
  explicit CacheTurn(Cache* cache) {
    if (cache != nullptr) lock_ = Lock(cache->turn);
  }

 private:
  Lock lock_;
};
using CacheReading = CacheTurn<std::shared_lock<std::shared_mutex>>;
using CacheWriting = CacheTurn<std::unique_lock<std::shared_mutex>>;

}  // namespace cephalo::python
