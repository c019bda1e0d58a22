// cuda: 16-bit elements on the tensor cores of Hopper.
#include "cephalo/attention/cuda/engine.h"

#include "cephalo/attention/cuda/hopper_backward.h"
#include "cephalo/attention/cuda/hopper_forward.h"
#include "cephalo/core/cuda_device.h"

namespace cephalo {
namespace {

const char* absent(Device device) {
  if (const char* reason = cuda::why_absent(device.index)) return reason;
  return cuda::capability_of(device.index).major == 9
             ? nullptr
             : "the GPU is not a Hopper (compute capability 9.0)";
}

const char* refuses(const AttendProblem& problem, Job /*job*/) {
  return why_not_on_hopper(problem);
}

std::size_t scratch(const AttendProblem& problem, Job job) {
  return job == Job::backward ? hopper_backward_scratch(problem) : hopper_forward_scratch(problem);
}

}  // namespace

const EngineEntry cuda_engine{
    .engine = Engine::cuda,
    .name = "cuda",
    .device = DeviceKind::cuda,
    .absent = absent,
    .refuses = refuses,
    .attend = attend_on_hopper,
    .attend_backward = attend_backward_on_hopper,
    .scratch = scratch,
};

}  // namespace cephalo
