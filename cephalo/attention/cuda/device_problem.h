#pragma once

#include <cstddef>
#include <vector>

#include "cephalo/attention/engine/backward_problem.h"
#include "cephalo/core/cuda_device.h"
#include "cephalo/kernels/cuda/hopper.h"
#include "cephalo/kernels/cuda/simple.h"

namespace cephalo {

kernels::cuda::Rows rows_of(const TensorView& t);  // rank 4; lse: rank 3

// Why no kernel knows this mask or these options; null: cuda_simple does.
const char* why_not_on_cuda(const AttendProblem& problem);

// A problem as kernels see it: what the mask holds on the host is sent along, in stream order and
// without waiting. Lives as long as the call; its scratch is given back in stream order.
class DeviceProblem {
 public:
  struct DocumentsAt;  // where in the scratch they are

  // scratch_bytes: what the caller's kernels want for themselves.
  DeviceProblem(const AttendProblem& problem, std::size_t scratch_bytes);

  const kernels::cuda::AttendArgs& args() const { return args_; }
  // The same for kernels of hopper.h.
  kernels::cuda::PairRules pair_rules() const;
  void set_results(const MutableTensorView& context, const MutableTensorView& lse);
  // Four numbers that are 0 when the first kernel starts.
  unsigned* counters() const;
  // The next `bytes` of the scratch, aligned for anything.
  void* take(std::size_t bytes);
  static std::size_t taken(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

 private:
  void send(const AttendProblem& problem, std::size_t scratch_bytes);
  void write_documents(const MaskExtent& extent, const DocumentsAt& at);

  cuda::UseDevice device_;
  kernels::cuda::AttendArgs args_{};
  kernels::cuda::DocumentSpans spans_{};
  std::vector<std::byte> numbers_;  // of the host
  std::unique_ptr<cuda::Scratch> scratch_;
  std::size_t used_ = 0;
};

}  // namespace cephalo
