// A kernel's launch with its arguments' types checked.
#pragma once

#include <cuda_runtime_api.h>

#include <type_traits>

#include "cephalo/kernels/cuda/launches.h"

namespace cephalo::kernels::cuda {

struct LaunchSize {
  dim3 grid;
  unsigned threads;
  std::size_t shared_bytes = 0;
  bool starts_early = false;
};

// launch(kernel, {blocks, threads}, stream, arguments...), whose types are the kernel's own.
template <typename... Parameters, typename... Arguments>
int launch(void (*kernel)(Parameters...), const LaunchSize& size, void* stream,
           const Arguments&... arguments) {
  static_assert((std::is_same_v<Parameters, Arguments> && ...));
  const KernelArgument all[] = {{&arguments, sizeof(arguments)}...};
  return launch_kernel(
      reinterpret_cast<const void*>(kernel),
      {{size.grid.x, size.grid.y, size.grid.z}, size.threads, size.shared_bytes, size.starts_early},
      all, sizeof...(arguments), stream);
}

}  // namespace cephalo::kernels::cuda
