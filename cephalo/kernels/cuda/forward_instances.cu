// The instances of the forward kernel that look at CEPHALO_LOOKS_AT, and their launch.
#include "cephalo/kernels/cuda/forward.cuh"
#include "cephalo/kernels/cuda/instances.cuh"

namespace cephalo::kernels::cuda {
namespace {

template <typename C>
int launch(const HopperForward& args, cudaStream_t stream) {
  const int error = cudaFuncSetAttribute(
      attend_forward<C>, cudaFuncAttributeMaxDynamicSharedMemorySize, C::kSharedBytes);
  if (error != cudaSuccess) return error;
  const int blocks = min(multiprocessors(), tile_count<C>(args));
  attend_forward<C><<<blocks, C::kThreads, C::kSharedBytes, stream>>>(args);
  return cudaGetLastError();
}

template <DType kDType, int kWidth, LooksAt kLooksAt>
constexpr ForwardEntry entry() {
  using C = ForwardConfig<typename ElementOf<kDType>::Type, kWidth, kLooksAt>;
  return {{kDType, kWidth, kLooksAt}, {64, C::kKeys}, launch<C>};
}
#define CEPHALO_ENTRY(TYPE, WIDTH, LOOKS_AT) entry<DType::TYPE, WIDTH, LooksAt::LOOKS_AT>(),
constexpr ForwardEntry kEntries[] = {CEPHALO_HOPPER_INSTANCES(CEPHALO_ENTRY, CEPHALO_LOOKS_AT)};
#undef CEPHALO_ENTRY

}  // namespace

template <>
Entries<ForwardEntry> entries<ForwardEntry, LooksAt::CEPHALO_LOOKS_AT>() {
  return {kEntries, static_cast<int>(sizeof(kEntries) / sizeof(kEntries[0]))};
}

}  // namespace cephalo::kernels::cuda
