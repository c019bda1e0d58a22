#pragma once

#include <cstddef>

#include "cephalo/attention/cuda/device_problem.h"
#include "cephalo/attention/cuda/tensor_map.h"

namespace cephalo {

// A tensor where the copy engine can reach it: itself, or a dense copy in the call's scratch.

// Bytes of scratch that t takes as `dtype`; 0 when it is used where it lies.
std::size_t packed_bytes(const TensorView& t, DType dtype);

// t, or its dense copy.
TensorView packed(const TensorView& t, DeviceProblem& call);

// t, or memory of its shape; write_back then copies that to t.
MutableTensorView packed_result(const MutableTensorView& t, DType dtype, DeviceProblem& call);
void write_back(const MutableTensorView& t, const TensorView& result);

}  // namespace cephalo
