#pragma once

#include <mutex>
#include <shared_mutex>
#include <utility>

#include "cephalo/attention/kv_cache.h"
#include "cephalo/core/turn.h"

namespace cephalo::python {

// A cache that calls use while the GIL is released: many readers, or one writer.
struct Cache {
  explicit Cache(KVCache&& cache) : stored(std::move(cache)) {}
  KVCache stored;
  Turn turn{"KVCache"};
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
using CacheReading = CacheTurn<std::shared_lock<Turn>>;
using CacheWriting = CacheTurn<std::unique_lock<Turn>>;

}  // namespace cephalo::python
