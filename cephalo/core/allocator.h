#pragma once

// Inside the library only.

#include <cstddef>

#include "cephalo/core/device.h"

namespace cephalo {

// How memory of a device that is not the host is taken and given back. Tensors point at it for as
// long as they live.
class Allocator {
 public:
  // At least `bytes`, aligned for any element; throws where there is no room.
  virtual void* allocate(std::size_t bytes) const = 0;
  virtual void release(void* memory) const noexcept = 0;

  // Bytes from the host and to it, after what is in the current stream; they are there when this
  // returns. An error where the device does not have it.
  virtual void copy_in(void* to, const void* host, std::size_t bytes) const;
  virtual void copy_out(void* host, const void* from, std::size_t bytes) const;
  // Until all that is in the current stream is done.
  virtual void wait() const {}

 protected:
  ~Allocator() = default;
};

// That of a device, or an error that names it.
const Allocator& allocator_of(Device device);

// What this thread does on devices goes into this stream while this object lives: allocations,
// copies and kernels. Null, as at first: the device's own default stream.
class UseStream {
 public:
  explicit UseStream(void* stream);
  ~UseStream();
  UseStream(const UseStream&) = delete;
  UseStream& operator=(const UseStream&) = delete;

 private:
  void* before_;
};
void* current_stream();

// The device is there while this object is.
class ScopedAllocator {
 public:
  ScopedAllocator(Device device, const Allocator& allocator);
  ~ScopedAllocator();
  ScopedAllocator(const ScopedAllocator&) = delete;
  ScopedAllocator& operator=(const ScopedAllocator&) = delete;

 private:
  Device device_;
};

}  // namespace cephalo
