#pragma once

#include <cstddef>

#include "cephalo/attention/cuda/device_problem.h"
#include "cephalo/attention/cuda/tensor_map.h"

namespace cephalo {

// A tensor where the copy engine can reach it: itself, or a copy in the call's scratch whose rows
// are padded to whole planes with zeros, or split into parts.

// Bytes of scratch that t takes as `dtype`; 0 when it is used where it lies.
std::size_t packed_bytes(const TensorView& t, DType dtype);

// How a kernel reads a tensor: so many columns, of so many parts.
struct OperandSize {
  int rows, width, parts;  // rows: of a box
};
// Bytes of scratch that t takes; 0 when it is used where it lies.
std::size_t operand_bytes(const TensorView& t, const OperandSize& size);
// What becomes of rows of parts that are not finite: a NaN that is multiplied by a weight of 0
// would reach who does not see it.
struct RowCare {
  bool clears = false;                // they become 0,
  const TensorView* marks = nullptr;  // and a NaN is put into the same row here, of the same tokens
};
// t, its copy, or its parts.
TensorView operand(const TensorView& t, const OperandSize& size, DeviceProblem& call,
                   const RowCare& care = {});
kernels::cuda::TensorMap operand_map(const TensorView& operand, const OperandSize& size);

// t, or memory of its shape and padding; write_back then copies that to t.
MutableTensorView packed_result(const MutableTensorView& t, DType dtype, DeviceProblem& call);
void write_back(const MutableTensorView& t, const TensorView& result);

}  // namespace cephalo
