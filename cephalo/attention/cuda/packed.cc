#include "cephalo/attention/cuda/packed.h"

#include "cephalo/kernels/cuda/copy.h"

namespace cephalo {
namespace {

bool used_in_place(const TensorView& t, DType dtype) {
  return t.dtype() == dtype && fits_tensor_map(t);
}

void copy(const TensorView& to, const TensorView& from) {
  const std::int64_t shape[4] = {to.dim(0), to.dim(1), to.dim(2), to.dim(3)};
  cuda::check(kernels::cuda::copy_rows(rows_of(to), rows_of(from), shape, current_stream()),
              "attend: packing");
}

MutableTensorView dense(const TensorView& t, DType dtype, DeviceProblem& call) {
  return {call.take(packed_bytes(t, dtype)), dtype, t.shape(), t.device()};
}

}  // namespace

std::size_t packed_bytes(const TensorView& t, DType dtype) {
  if (used_in_place(t, dtype)) return 0;
  return DeviceProblem::taken(static_cast<std::size_t>(t.numel()) * item_size(dtype));
}

TensorView packed(const TensorView& t, DeviceProblem& call) {
  if (used_in_place(t, t.dtype())) return t;
  const MutableTensorView result = dense(t, t.dtype(), call);
  copy(result, t);
  return result;
}

MutableTensorView packed_result(const MutableTensorView& t, DType dtype, DeviceProblem& call) {
  return used_in_place(t, dtype) ? t : dense(t, dtype, call);
}

void write_back(const MutableTensorView& t, const TensorView& result) {
  if (result.data() != t.data()) copy(t, result);
}

}  // namespace cephalo
