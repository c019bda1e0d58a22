#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "cephalo/attention/cuda/stream_block.h"
#include "cephalo/attention/engine/backward_problem.h"
#include "cephalo/core/cuda_device.h"
#include "cephalo/kernels/cuda/hopper.h"
#include "cephalo/kernels/cuda/simple.h"

namespace cephalo {

kernels::cuda::Rows rows_of(const TensorView& t);  // rank 4; lse: rank 3

// Why no kernel knows this mask or these options; null: cuda_simple does.
const char* why_not_on_cuda(const AttendProblem& problem);

// A problem as kernels see it: what the mask holds on the host is sent along, in stream order and
// without waiting. Lives as long as the call, whose kernels are launched when all are known: no
// kernel runs before `launch`. Its memory is the stream's block, or, where that is
// too small or there is none, taken and given back in stream order.
class DeviceProblem {
 public:
  struct DocumentsAt;  // where in the scratch they are

  // scratch_bytes: what the caller's kernels want for themselves.
  DeviceProblem(const AttendProblem& problem, std::size_t scratch_bytes);

  const kernels::cuda::AttendArgs& args() const { return args_; }
  // The same for kernels of hopper.h.
  kernels::cuda::PairRules pair_rules() const;
  void set_results(const MutableTensorView& context, const MutableTensorView& lse);
  // kCounters numbers that are 0 when the first kernel starts.
  unsigned* counters();
  // Those of the stream's next call, which the last kernel is to clear; null: nobody needs it.
  unsigned* next_counters() const { return counters_.next; }
  // All kernels of the call, when the last has been added. doing: begins the message of an error.
  void launch(const char* doing);
  // The next `bytes` of the scratch, aligned for anything.
  void* take(std::size_t bytes);
  static std::size_t taken(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

 private:
  void send(const AttendProblem& problem, std::size_t scratch_bytes);
  std::byte* memory_for(std::size_t bytes);
  bool are_numbers_kept() const;
  const std::byte* sent();
  void write_documents(const MaskExtent& extent, const DocumentsAt& at, const std::byte* sent);

  cuda::UseDevice device_;
  StreamBlock block_;
  kernels::cuda::LaunchLine line_;
  kernels::cuda::AttendArgs args_{};
  kernels::cuda::DocumentSpans spans_{};
  std::vector<std::byte> numbers_;  // of the host
  std::optional<cuda::Scratch> scratch_;
  std::byte* memory_ = nullptr;
  std::size_t used_ = 0;  // of it
  StreamBlock::Counters counters_{};
};

}  // namespace cephalo
