#include "cephalo/core/device.h"

#include <array>
#include <atomic>
#include <charconv>
#include <limits>

#include "cephalo/core/allocator.h"
#include "cephalo/core/fail.h"
#ifdef CEPHALO_CUDA
#include "cephalo/core/cuda_device.h"
#endif
#include "cephalo/core/printable.h"

namespace cephalo {
namespace {

constexpr int kIndices = std::numeric_limits<std::uint8_t>::max() + 1;

// Of kind and index; null: there is no such device. The host has none here: its memory is the
// language's.
std::atomic<const Allocator*>& entry_of(Device device) {
  static std::array<std::atomic<const Allocator*>, std::size_t{kDeviceKinds} * kIndices> table{};
  return table[static_cast<std::size_t>(device.kind) * kIndices + device.index];
}

thread_local void* stream_of_thread = nullptr;

// A device that was found rather than registered; null: there is none.
const Allocator* found_allocator([[maybe_unused]] Device device) {
#ifdef CEPHALO_CUDA
  if (device.kind == DeviceKind::cuda) return cuda::find_allocator(device.index);
#endif
  return nullptr;
}

}  // namespace

const char* name(DeviceKind kind) {
  static constexpr const char* kNames[kDeviceKinds] = {"host", "cuda"};
  return kNames[static_cast<int>(kind)];
}

std::string to_string(Device device) {
  if (device.is_host()) return name(device.kind);
  return format_text("{}:{}", name(device.kind), device.index);
}

Device parse_device(std::string_view text) {
  const std::string_view kind = text.substr(0, text.find(':'));
  if (text == name(DeviceKind::host)) return {};
  if (text == name(DeviceKind::cuda)) return {DeviceKind::cuda, 0};
  if (kind == name(DeviceKind::cuda)) {
    Device device{DeviceKind::cuda, 0};
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + kind.size() + 1, end, device.index);
    if (error == std::errc() && stop == end) return device;
  }
  fail(Error::Kind::value, "device: {} is not a device; host, cuda or cuda:N with N in [0, {}] is",
       shown(text), kIndices - 1);
}

const Allocator& allocator_of(Device device) {
  const Allocator* allocator = entry_of(device).load(std::memory_order_acquire);
  if (allocator == nullptr) allocator = found_allocator(device);
  require(allocator != nullptr, "tensor: there is no device {} here", device);
  return *allocator;
}

void Allocator::copy_in(void* /*to*/, const void* /*host*/, std::size_t /*bytes*/) const {
  fail(Error::Kind::value, "copy: this device's memory cannot be reached from the host");
}

void Allocator::copy_out(void* /*host*/, const void* /*from*/, std::size_t /*bytes*/) const {
  fail(Error::Kind::value, "copy: this device's memory cannot be reached from the host");
}

UseStream::UseStream(void* stream) : before_(stream_of_thread) {
  stream_of_thread = stream;
}

UseStream::~UseStream() {
  stream_of_thread = before_;
}

void* current_stream() {
  return stream_of_thread;
}

ScopedAllocator::ScopedAllocator(Device device, const Allocator& allocator) : device_(device) {
  require(!device.is_host(), "device: the host's memory is the language's own");
  const Allocator* none = nullptr;
  require(entry_of(device).compare_exchange_strong(none, &allocator), "device: {} is there already",
          device);
}

ScopedAllocator::~ScopedAllocator() {
  entry_of(device_).store(nullptr, std::memory_order_release);
}

}  // namespace cephalo
