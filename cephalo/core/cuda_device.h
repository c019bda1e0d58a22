#pragma once

// Inside the library only, and only in builds with CUDA.

#include <cstddef>

#include "cephalo/core/allocator.h"

// GPUs as this process finds them. The runtime is linked in and looks for the driver when it is
// first asked: without one the library loads, and this says that there is none. No CUDA header is
// needed to use it; streams are void*.
namespace cephalo::cuda {

// Null: the GPU is there. Otherwise why it is not.
const char* why_absent(int index);

// Null where the GPU is absent.
const Allocator* find_allocator(int index);

struct Capability {
  int major, minor;
};
Capability capability_of(int index);

// Calls of the runtime from this thread mean this GPU while this object lives.
class UseDevice {
 public:
  explicit UseDevice(int index);
  ~UseDevice();
  UseDevice(const UseDevice&) = delete;
  UseDevice& operator=(const UseDevice&) = delete;

 private:
  int before_;
};

// Memory of the current GPU for one call, taken and given back in the order of the current stream.
class Scratch {
 public:
  explicit Scratch(std::size_t bytes);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  std::byte* data() const { return memory_; }

 private:
  void* stream_;
  std::byte* memory_;
};

// Throws when a call failed; error is cudaError_t's number, `doing` begins the message.
void check(int error, const char* doing);

// Throws when kernels of an earlier call have failed since: nobody waits for them, so that the next
// call is where it comes out.
void check_earlier_calls();

}  // namespace cephalo::cuda
