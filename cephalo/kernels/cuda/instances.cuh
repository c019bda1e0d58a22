// What the tables of instances share. Those that look at the same are compiled together, apart from
// the others: forward_instances.cu and backward_instances.cu, once for each CEPHALO_LOOKS_AT.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>

#include "cephalo/kernels/cuda/hopper.cuh"
#include "cephalo/kernels/cuda/hopper.h"
#include "cephalo/kernels/cuda/instances.h"

namespace cephalo::kernels::cuda {

template <DType kDType>
struct ElementOf;
template <>
struct ElementOf<DType::bf16> {
  using Type = hopper::Bf16;
};
template <>
struct ElementOf<DType::f16> {
  using Type = hopper::F16;
};

constexpr int kMostDevices = 256;

// Of the current GPU.
inline int multiprocessors() {
  static std::atomic<int> counts[kMostDevices];
  int device = 0;
  cudaGetDevice(&device);
  int count = counts[device].load(std::memory_order_relaxed);
  if (count == 0) {
    cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
    counts[device].store(count, std::memory_order_relaxed);
  }
  return count;
}

// More shared memory than a kernel gets unasked: once for each GPU. Returns cudaError_t's number.
template <auto kKernel, int kBytes>
int allow_shared_memory() {
  static std::atomic<bool> is_allowed[kMostDevices];
  int device = 0;
  cudaGetDevice(&device);
  if (is_allowed[device].load(std::memory_order_relaxed)) return cudaSuccess;
  const int error =
      cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error == cudaSuccess) is_allowed[device].store(true, std::memory_order_relaxed);
  return error;
}

struct ForwardEntry {
  Instance instance;
  ForwardBoxes boxes;
  int (*launch)(const HopperForward&, cudaStream_t);
};
struct BackwardEntry {
  Instance instance;
  BackwardBoxes boxes;
  int (*by_turns)(const HopperBackward&, cudaStream_t);
  int (*in_any_order)(const HopperBackward&, cudaStream_t);  // null: by turns is as fast
};

// Those that look at the same.
template <typename Entry>
struct Entries {
  const Entry* data;
  int count;
};
template <typename Entry, LooksAt kLooksAt>
Entries<Entry> entries();
template <typename Entry>
Entries<Entry> wide_entries();

// Does a wide instance take what another was wanted for? They are listed narrowest first.
inline bool takes(const Instance& wide, const Instance& wanted) {
  return wide.dtype == wanted.dtype && wide.parts == wanted.parts && wanted.width <= wide.width &&
         wanted.v_width <= wide.v_width;
}

// Null where there is none.
template <typename Entry>
const Entry* find_instance(const Instance& wanted) {
  Entries<Entry> found{nullptr, 0};
  if (wanted.is_wide()) {
    found = wide_entries<Entry>();
    for (int n = 0; n < found.count; ++n) {
      if (takes(found.data[n].instance, wanted)) return found.data + n;
    }
    return nullptr;
  }
  switch (wanted.looks_at) {
#define CEPHALO_CASE(LOOKS_AT)                   \
  case LooksAt::LOOKS_AT:                        \
    found = entries<Entry, LooksAt::LOOKS_AT>(); \
    break;
    CEPHALO_HOPPER_LOOKS(CEPHALO_CASE)
#undef CEPHALO_CASE
  }
  const Entry* best = nullptr;  // few have one for documents
  for (int n = 0; n < found.count; ++n) {
    const Instance& each = found.data[n].instance;
    if (each.dtype != wanted.dtype || each.width != wanted.width) continue;
    if (each.has_documents == wanted.has_documents) return found.data + n;
    if (!each.has_documents) best = found.data + n;
  }
  return best;
}

}  // namespace cephalo::kernels::cuda
