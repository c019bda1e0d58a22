#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <map>
#include <new>

#include "cephalo/core/allocator.h"
#include "cephalo/core/tensor.h"

namespace cephalo::testing {

// A device whose memory nobody may touch: every page is mapped PROT_NONE, so that a read or a write
// from the host ends the test. It is there while this object is.
class FakeDevice : public Allocator {
 public:
  explicit FakeDevice(Device device = {DeviceKind::cuda, 1})
      : device_(device), registered_(device, *this) {}

  Device device() const { return device_; }
  Tensor empty(const Shape& shape, DType dtype = DType::f32) const {
    return Tensor::empty(shape, dtype, device_);
  }
  std::size_t tensors() const { return mapped_.size(); }

  void* allocate(std::size_t bytes) const override {
    const std::size_t size = bytes > 0 ? bytes : 1;
    void* memory = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    mapped_[memory] = size;
    return memory;
  }
  void release(void* memory) const noexcept override {
    munmap(memory, mapped_[memory]);
    mapped_.erase(memory);
  }

 private:
  Device device_;
  mutable std::map<void*, std::size_t> mapped_;
  ScopedAllocator registered_;
};

}  // namespace cephalo::testing
