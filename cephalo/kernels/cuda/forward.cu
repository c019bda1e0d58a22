// Which instance of the forward kernel, and its launch.
#include "cephalo/kernels/cuda/instances.cuh"

namespace cephalo::kernels::cuda {

ForwardBoxes forward_boxes(const Instance& instance) {
  const auto* found = find_instance<ForwardEntry>(instance);
  return found != nullptr ? found->boxes : ForwardBoxes{0, 0};
}

int attend_hopper(const Instance& instance, const HopperForward& args, void* stream) {
  const auto* found = find_instance<ForwardEntry>(instance);
  if (found == nullptr) return cudaErrorInvalidDeviceFunction;
  return found->launch(args, static_cast<cudaStream_t>(stream));
}

}  // namespace cephalo::kernels::cuda
