#pragma once

#include <cstddef>

// How kernels are launched: one by one, or the kernels of a call together, as one graph, which
// costs the host about half. Functions return cudaError_t's number.
namespace cephalo::kernels::cuda {

struct KernelSize {
  unsigned grid[3];
  unsigned threads;          // of a block
  std::size_t shared_bytes;  // beside what a kernel declares itself
  // In a graph: while the kernel before it runs, for which its threads wait_for_kernel_before().
  bool starts_early;
};
struct KernelArgument {
  const void* data;  // copied
  std::size_t bytes;
};

// Into the stream, or, while a LaunchLine is open on this thread, behind the others of that.
int launch_kernel(const void* kernel, const KernelSize& size, const KernelArgument* arguments,
                  int count, void* stream);

// Launches what waits in this thread's line: before anything else is put into the stream.
int launch_waiting();

}  // namespace cephalo::kernels::cuda
