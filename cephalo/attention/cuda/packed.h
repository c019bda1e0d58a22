#pragma once

#include <cstddef>

#include "cephalo/attention/cuda/device_problem.h"
#include "cephalo/attention/cuda/tensor_map.h"

namespace cephalo {

// A tensor where the copy engine can reach it: itself, or a copy in the call's scratch whose rows
// are padded to whole planes with zeros.

// Bytes of scratch that t takes as `dtype`; 0 when it is used where it lies.
std::size_t packed_bytes(const TensorView& t, DType dtype);

// t, or its copy.
TensorView packed(const TensorView& t, DeviceProblem& call);

// t, or memory of its shape and padding; write_back then copies that to t.
MutableTensorView packed_result(const MutableTensorView& t, DType dtype, DeviceProblem& call);
void write_back(const MutableTensorView& t, const TensorView& result);

}  // namespace cephalo
