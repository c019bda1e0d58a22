#include "cephalo/core/cuda_device.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <mutex>
#include <string>
#include <unordered_map>

#include "cephalo/core/fail.h"
#include "cephalo/core/turn.h"

namespace cephalo::cuda {
namespace {

constexpr int kMostDevices = std::numeric_limits<std::uint8_t>::max() + 1;

std::string version_text(int version) {
  return format_text("{}.{}", version / 1000, version % 1000 / 10);
}

struct Found {
  int count = 0;
  std::string why_none;  // empty: there are some
};

Found look_for_devices() {
  Found found;
  int driver = 0;
  cudaDriverGetVersion(&driver);
  const cudaError_t error = cudaGetDeviceCount(&found.count);
  if (driver == 0) {
    found.why_none = "there is no NVIDIA driver on this machine";
  } else if (error == cudaErrorInsufficientDriver) {
    found.why_none = format_text("the driver of this machine is for CUDA {}, this build needs {}",
                                 version_text(driver), version_text(CUDART_VERSION));
  } else if (error != cudaSuccess || found.count == 0) {
    found.why_none = format_text("there is no GPU that CUDA can use ({})",
                                 error == cudaSuccess ? "none" : cudaGetErrorString(error));
  }
  if (!found.why_none.empty()) found.count = 0;
  cudaGetLastError();  // it was heard
  return found;
}

const Found& devices() {
  static const Found found = look_for_devices();
  return found;
}

// A pool of our own: what a call gives back stays for the next, whatever others do with the
// default pool.
cudaMemPool_t make_pool(int index) {
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = index;
  cudaMemPool_t pool = nullptr;
  check(cudaMemPoolCreate(&pool, &properties), "cuda: a pool of memory");
  std::uint64_t keep = std::numeric_limits<std::uint64_t>::max();
  check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep),
        "cuda: a pool of memory");
  return pool;
}

cudaMemPool_t pool_of(int index) {
  static std::array<std::once_flag, kMostDevices> once;
  static std::array<cudaMemPool_t, kMostDevices> pools{};
  const auto at = static_cast<std::size_t>(index);
  std::call_once(once[at], [&] { pools[at] = make_pool(index); });
  return pools[at];
}

void* allocate_in_order(int index, std::size_t bytes, void* stream) {
  void* memory = nullptr;
  const cudaError_t error = cudaMallocFromPoolAsync(
      &memory, std::max<std::size_t>(bytes, 1), pool_of(index), static_cast<cudaStream_t>(stream));
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    fail(Error::Kind::memory, "cuda: no memory for {} bytes on cuda:{}", bytes, index);
  }
  check(error, "cuda: memory");
  return memory;
}

// Tensors' memory, given back in the stream that it was taken in.
class PoolAllocator final : public Allocator {
 public:
  void use(int index) { index_ = index; }

  void* allocate(std::size_t bytes) const override {
    const UseDevice device(index_);
    void* stream = current_stream();
    void* memory = allocate_in_order(index_, bytes, stream);
    const std::unique_lock lock(turn_);
    streams_[memory] = stream;
    return memory;
  }

  void release(void* memory) const noexcept override {
    if (memory == nullptr) return;
    void* stream = nullptr;
    {
      if (!turn_.lock_unless_left_behind()) return;  // a forked child has no GPU
      const std::unique_lock lock(turn_, std::adopt_lock);
      const auto found = streams_.find(memory);
      if (found == streams_.end()) return;
      stream = found->second;
      streams_.erase(found);
    }
    // Whose context this thread has now is not known: a collector of garbage may call from
    // anywhere.
    int before = index_;
    cudaGetDevice(&before);
    cudaSetDevice(index_);
    cudaFreeAsync(memory, static_cast<cudaStream_t>(stream));
    if (before != index_) cudaSetDevice(before);
  }

  void copy_in(void* to, const void* host, std::size_t bytes) const override {
    copy(to, host, bytes, cudaMemcpyHostToDevice);
  }
  void copy_out(void* host, const void* from, std::size_t bytes) const override {
    copy(host, from, bytes, cudaMemcpyDeviceToHost);
  }
  void wait() const override {
    const UseDevice device(index_);
    check(cudaStreamSynchronize(static_cast<cudaStream_t>(current_stream())),
          "cuda: a kernel of this call or an earlier one");
  }

 private:
  void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) const {
    const UseDevice device(index_);
    const auto stream = static_cast<cudaStream_t>(current_stream());
    check(cudaMemcpyAsync(to, from, bytes, kind, stream), "cuda: a copy");
    check(cudaStreamSynchronize(stream), "cuda: a copy, or a kernel before it");
  }

  int index_ = 0;
  mutable Turn turn_{"cuda memory"};
  mutable std::unordered_map<void*, void*> streams_;
};

}  // namespace

const char* why_absent(int index) {
  const Found& found = devices();
  if (!found.why_none.empty()) return found.why_none.c_str();
  return index < found.count ? nullptr : "this machine has no GPU of that number";
}

const Allocator* find_allocator(int index) {
  // Never destroyed: tensors may outlive other static objects.
  static const auto& allocators = []() -> std::array<PoolAllocator, kMostDevices>& {
    auto* all = new std::array<PoolAllocator, kMostDevices>();
    int next = 0;
    for (PoolAllocator& each : *all) each.use(next++);
    return *all;
  }();
  if (why_absent(index) != nullptr) return nullptr;
  return &allocators[static_cast<std::size_t>(index)];
}

Capability capability_of(int index) {
  static std::array<std::once_flag, kMostDevices> once;
  static std::array<Capability, kMostDevices> found{};
  const auto at = static_cast<std::size_t>(index);
  std::call_once(once[at], [&] {
    const auto ask = [&](int& number, cudaDeviceAttr what) {
      check(cudaDeviceGetAttribute(&number, what, index), "cuda: the GPU's capability");
    };
    ask(found[at].major, cudaDevAttrComputeCapabilityMajor);
    ask(found[at].minor, cudaDevAttrComputeCapabilityMinor);
  });
  return found[at];
}

UseDevice::UseDevice(int index) : before_(0) {
  check(cudaGetDevice(&before_), "cuda: the current GPU");
  // Even if it is that one: another library may have taken the context away from this thread.
  check(cudaSetDevice(index), "cuda: the GPU of a call");
}

UseDevice::~UseDevice() {
  int now = before_;
  cudaGetDevice(&now);
  if (now != before_) cudaSetDevice(before_);
}

Scratch::Scratch(std::size_t bytes) : stream_(current_stream()), memory_(nullptr) {
  int index = 0;
  check(cudaGetDevice(&index), "cuda: the current GPU");
  memory_ = static_cast<std::byte*>(allocate_in_order(index, bytes, stream_));
}

Scratch::~Scratch() {
  cudaFreeAsync(memory_, static_cast<cudaStream_t>(stream_));
}

void check(int error, const char* doing) {
  if (error == cudaSuccess) return;
  cudaGetLastError();
  fail(Error::Kind::value, "{}: {}", doing, cudaGetErrorString(static_cast<cudaError_t>(error)));
}

void check_earlier_calls() {
  check(cudaPeekAtLastError(), "cuda: an earlier call failed");
}

}  // namespace cephalo::cuda
