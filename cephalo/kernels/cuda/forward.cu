// The instances of the forward kernel, and their launch.
#include "cephalo/kernels/cuda/forward.cuh"

#include <cuda_runtime_api.h>

#include "cephalo/kernels/cuda/instances.cuh"

namespace cephalo::kernels::cuda {
namespace {

int multiprocessors() {
  int device = 0, count = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  return count;
}

template <typename C>
int launch(const HopperForward& args, cudaStream_t stream) {
  const int error = cudaFuncSetAttribute(
      attend_forward<C>, cudaFuncAttributeMaxDynamicSharedMemorySize, C::kSharedBytes);
  if (error != cudaSuccess) return error;
  const int blocks = min(multiprocessors(), tile_count<C>(args));
  attend_forward<C><<<blocks, C::kThreads, C::kSharedBytes, stream>>>(args);
  return cudaGetLastError();
}

struct Entry {
  Instance instance;
  ForwardBoxes boxes;
  int (*launch)(const HopperForward&, cudaStream_t);
};
template <DType kDType, int kWidth, LooksAt kLooksAt>
constexpr Entry entry() {
  using C = ForwardConfig<typename ElementOf<kDType>::Type, kWidth, kLooksAt>;
  return {{kDType, kWidth, kLooksAt}, {64, C::kKeys}, launch<C>};
}
#define CEPHALO_ENTRY(TYPE, WIDTH, LOOKS_AT) entry<DType::TYPE, WIDTH, LooksAt::LOOKS_AT>(),
constexpr Entry kEntries[] = {CEPHALO_HOPPER_INSTANCES(CEPHALO_ENTRY)};
#undef CEPHALO_ENTRY

}  // namespace

ForwardBoxes forward_boxes(const Instance& instance) {
  const Entry* found = find_instance(kEntries, instance);
  return found != nullptr ? found->boxes : ForwardBoxes{0, 0};
}

int attend_hopper(const Instance& instance, const HopperForward& args, void* stream) {
  const Entry* found = find_instance(kEntries, instance);
  if (found == nullptr) return cudaErrorInvalidDeviceFunction;
  return found->launch(args, static_cast<cudaStream_t>(stream));
}

}  // namespace cephalo::kernels::cuda
