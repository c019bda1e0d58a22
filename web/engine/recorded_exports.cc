// A recorded text as C functions, for JavaScript: see engine.cc.
#include <cstdlib>
#include <memory>

#include "cephalo/core/fail.h"
#include "web/engine/exports.h"
#include "web/engine/recorded.h"

namespace {

using namespace cephalo::page;

struct Freed {
  void operator()(std::byte* memory) const { std::free(memory); }
};

std::unique_ptr<std::byte, Freed> file;
std::unique_ptr<RecordedPass> recorded;

RecordedPass& recording() {
  cephalo::require(recorded != nullptr, "page: there is no recording");
  return *recorded;
}

}  // namespace

extern "C" {

// data: of engine_alloc, and the engine's from now on: a recording is in memory once.
int EXPORT(recorded_load)(std::byte* data, std::size_t bytes) {
  return guarded([&] {
    recorded.reset();
    file.reset(data);
    recorded = std::make_unique<RecordedPass>(std::span<const std::byte>(data, bytes));
    return 0;
  });
}

int EXPORT(recorded_weights)(int layer, int head, int first_row, int rows) {
  return guarded([&] {
    put_numbers(recording().weights(layer, head, first_row, rows));
    return 0;
  });
}

int EXPORT(recorded_pair)(int layer, int head, int query, int key) {
  return guarded([&] {
    put_numbers(recording().pair(layer, head, query, key));
    return 0;
  });
}

}  // extern "C"
