// cuda_simple: everything that attention can be asked for, a warp to a row.
#include "cephalo/attention/cuda/device_problem.h"
#include "cephalo/attention/cuda/engine.h"
#include "cephalo/kernels/cuda/simple.h"

namespace cephalo {
namespace {

using kernels::cuda::BackwardArgs;

const char* absent(Device device) {
  if (const char* reason = cuda::why_absent(device.index)) return reason;
  return cuda::capability_of(device.index).major >= 8
             ? nullptr
             : "the GPU is older than compute capability 8.0";
}

const char* refuses(const AttendProblem& problem, Job /*job*/) {
  return why_not_on_cuda(problem);
}

void attend(const AttendProblem& problem, const AttendOutput& output) {
  DeviceProblem there(problem, 0);
  there.set_results(output.context, output.lse);
  cuda::check(kernels::cuda::attend_simple(there.args(), current_stream()), "attend");
  there.launch("attend");
}

kernels::cuda::Sizes sizes_of(const AttendProblem& p) {
  return {p.q.dim(0), p.q.dim(1), p.k.dim(1), p.q.dim(2), p.k.dim(2), p.q.dim(3), p.v.dim(3)};
}

std::size_t row_numbers(const AttendProblem& problem) {
  return static_cast<std::size_t>(
      kernels::cuda::row_numbers_bytes(sizes_of(problem), problem.q.dtype()));
}

void attend_backward(const BackwardProblem& problem) {
  const std::size_t bytes = row_numbers(problem.forward);
  DeviceProblem there(problem.forward, DeviceProblem::taken(bytes));
  BackwardArgs args{};
  args.row_numbers = there.take(bytes);
  args.forward = there.args();
  args.forward.context = rows_of(problem.pass.context);
  args.forward.lse = rows_of(problem.pass.lse);
  args.dcontext = rows_of(problem.pass.dcontext);
  if (problem.pass.dlse.numel() > 0) args.dlse = rows_of(problem.pass.dlse);
  args.dq = rows_of(problem.gradients.dq);
  args.dk = rows_of(problem.gradients.dk);
  args.dv = rows_of(problem.gradients.dv);
  args.has_all_keys = problem.forward.mask.has_all_keys();
  cuda::check(kernels::cuda::attend_backward_simple(args, current_stream()), "attend_backward");
  for (const MutableTensorView& dbias : problem.gradients.dbias) {
    const kernels::cuda::BiasGradient to{rows_of(dbias),
                                         {dbias.dim(0), dbias.dim(1), dbias.dim(2), dbias.dim(3)}};
    cuda::check(kernels::cuda::bias_gradient_simple(args, to, current_stream()), "attend_backward");
  }
  there.launch("attend_backward");
}

std::size_t scratch(const AttendProblem& problem, Job job) {
  return job == Job::backward ? row_numbers(problem) : 0;
}

}  // namespace

const EngineEntry cuda_simple_engine{
    .engine = Engine::cuda_simple,
    .name = "cuda_simple",
    .device = DeviceKind::cuda,
    .absent = absent,
    .refuses = refuses,
    .attend = attend,
    .attend_backward = attend_backward,
    .scratch = scratch,
};

}  // namespace cephalo
