// A launch of the forward kernel.
#pragma once

#include "cephalo/kernels/cuda/forward.cuh"
#include "cephalo/kernels/cuda/instances.cuh"
#include "cephalo/kernels/cuda/launch.cuh"

namespace cephalo::kernels::cuda {

template <typename C>
int launch_forward(const HopperForward& args, cudaStream_t stream) {
  const int error = allow_shared_memory<attend_forward<C>, C::kSharedBytes>();
  if (error != cudaSuccess) return error;
  const int blocks = min(multiprocessors(), tile_count<C>(args));
  return launch(attend_forward<C>, {static_cast<unsigned>(blocks), C::kThreads, C::kSharedBytes},
                stream, args);
}

}  // namespace cephalo::kernels::cuda
