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

 protected:
  ~Allocator() = default;
};

// That of a device, or an error that names it.
const Allocator& allocator_of(Device device);

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
