#include "cephalo/attention/cuda/stream_block.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "cephalo/core/allocator.h"
#include "cephalo/core/cuda_device.h"
#include "cephalo/core/turn.h"
#include "cephalo/kernels/cuda/copy.h"

namespace cephalo {
namespace {

constexpr std::size_t kMostStreams = 64;  // of each GPU
// Layers of a model take turns with a few masks.
constexpr std::size_t kSlots = 8;
// Of both sets: each has a line of memory for itself.
constexpr std::size_t kSetBytes = 128, kCounterBytes = 2 * kSetBytes;

}  // namespace

struct StreamBlock::Kept {
  Kept(int of_device, unsigned long long of_stream) : device(of_device), stream(of_stream) {}

  const int device;
  const unsigned long long stream;  // the runtime's number: unlike handles, never used again
  std::atomic_flag is_taken;
  std::unique_ptr<cuda::Scratch> memory;
  int set = 0;            // of counters: this call's
  bool is_clear = false;  // that set
  std::array<std::vector<std::byte>, kSlots> sent;
  std::size_t oldest = 0;  // of `sent`
  kernels::cuda::KeptGraphs graphs;

  unsigned* counters(int of_set) const {
    return reinterpret_cast<unsigned*>(memory->data() +
                                       static_cast<std::size_t>(of_set) * kSetBytes);
  }
  std::byte* slot(std::size_t n) const { return memory->data() + kCounterBytes + n * kNumberBytes; }
  std::byte* work() const { return slot(kSlots); }
  static constexpr std::size_t bytes() {
    return kCounterBytes + kSlots * kNumberBytes + kWorkBytes;
  }
};

// Blocks are never given back: whether a stream that is gone has finished, nobody could ask.
StreamBlock::Kept* StreamBlock::find(int device, unsigned long long stream) {
  static thread_local Kept* last = nullptr;
  const auto is_it = [&](const Kept& each) {
    return each.device == device && each.stream == stream;
  };
  if (last != nullptr && is_it(*last)) return last;
  static auto& turn = *new Turn("cuda memory of streams");
  static auto& all = *new std::deque<Kept>();
  const std::unique_lock lock(turn);
  const auto found = std::find_if(all.begin(), all.end(), is_it);
  if (found != all.end()) return last = &*found;
  const auto count = std::count_if(all.begin(), all.end(),
                                   [&](const Kept& each) { return each.device == device; });
  if (static_cast<std::size_t>(count) >= kMostStreams) return nullptr;
  return last = &all.emplace_back(device, stream);
}

StreamBlock::StreamBlock() {
  const auto stream = static_cast<cudaStream_t>(current_stream());
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long number = 0;
  int device = 0;
  // A stream that says nothing is left to whoever uses it next, with the same error.
  if (cudaStreamIsCapturing(stream, &status) != cudaSuccess ||
      status != cudaStreamCaptureStatusNone || cudaStreamGetId(stream, &number) != cudaSuccess ||
      cudaGetDevice(&device) != cudaSuccess) {
    cudaGetLastError();
    return;
  }
  Kept* kept = find(device, number);
  if (kept == nullptr || kept->is_taken.test_and_set(std::memory_order_acquire)) return;
  kept_ = kept;
  if (kept->memory != nullptr) return;
  try {
    kept->memory = std::make_unique<cuda::Scratch>(Kept::bytes());
  } catch (...) {
    kept->is_taken.clear(std::memory_order_release);
    throw;
  }
}

StreamBlock::~StreamBlock() {
  if (kept_ != nullptr) kept_->is_taken.clear(std::memory_order_release);
}

kernels::cuda::KeptGraphs* StreamBlock::graphs() const {
  return kept_ == nullptr ? nullptr : &kept_->graphs;
}

std::byte* StreamBlock::work() const {
  return kept_->work();
}

const std::byte* StreamBlock::numbers(std::span<const std::byte> bytes) {
  for (std::size_t n = 0; n < kSlots; ++n) {
    const std::vector<std::byte>& there = kept_->sent[n];
    if (there.size() == bytes.size() &&
        std::memcmp(there.data(), bytes.data(), bytes.size()) == 0) {
      return kept_->slot(n);
    }
  }
  const std::size_t n = kept_->oldest;
  kept_->oldest = (n + 1) % kSlots;
  // From memory that stays as it is: the copy may read it after the call.
  std::vector<std::byte>& sent = kept_->sent[n];
  sent.assign(bytes.begin(), bytes.end());
  try {
    cuda::check(kernels::cuda::upload(kept_->slot(n), sent.data(), sent.size(), current_stream()),
                "attend");
    cuda::check(kernels::cuda::launch_waiting(), "attend");  // so that the call's line is as usual
  } catch (...) {
    sent.clear();
    throw;
  }
  return kept_->slot(n);
}

StreamBlock::Counters StreamBlock::counters() {
  if (!kept_->is_clear) {
    cuda::check(kernels::cuda::clear(kept_->counters(0), kCounterBytes, current_stream()),
                "attend");
    cuda::check(kernels::cuda::launch_waiting(), "attend");
  }
  kept_->is_clear = false;
  return {kept_->counters(kept_->set), kept_->counters(1 - kept_->set)};
}

void StreamBlock::cleared_next() {
  kept_->set = 1 - kept_->set;
  kept_->is_clear = true;
}

}  // namespace cephalo
