#pragma once

#include <vector>

#include "cephalo/attention/attend_backward.h"
#include "cephalo/attention/engine/engine.h"

namespace cephalo::testing {

inline constexpr Device kGpu{DeviceKind::cuda, 0};

// Is there a GPU, in a build that has engines for it?
bool has_gpu();

// The engines that pass the one suite here: reference and fused, and on a machine with a GPU cuda
// and cuda_simple. As a test's parameter `cuda` stands for what a GPU picks by itself: its fast
// kernels where they can, cuda_simple where they refuse.
std::vector<Engine> engines_here();
std::vector<Engine> backward_engines_here();  // those of them that have gradients

// What the list of engines says about one.
const EngineEntry& entry_of(Engine engine);

// attend and attend_backward by an engine of engines_here(). Tensors are the host's: for a GPU
// they, and those of the mask, are copied there, and results back. options.engine does not apply;
// weights are not asked of an engine that has none.
AttendResult attend_by(Engine engine, const TensorView& q, const TensorView& k, const TensorView& v,
                       const Mask& mask, AttendOptions options);
AttendGradients attend_backward_by(Engine engine, const AttendPass& pass, const TensorView& q,
                                   const TensorView& k, const TensorView& v, const Mask& mask,
                                   AttendOptions options, bool with_dbias);

// The same mask with its tensors on the GPU.
Mask mask_on_gpu(const Mask& mask);

}  // namespace cephalo::testing
