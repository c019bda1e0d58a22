#include "cephalo/attention/cuda/packed.h"

#include "cephalo/kernels/cuda/copy.h"

namespace cephalo {
namespace {

bool used_in_place(const TensorView& t, DType dtype) {
  return t.dtype() == dtype && fits_tensor_map(t);
}

dim_t padded_columns(const TensorView& t) {
  return (t.dim(3) + 63) / 64 * 64;
}

// What `to` has beside the columns of `from` becomes 0.
void copy(const TensorView& to, const TensorView& from) {
  const std::int64_t shape[4] = {to.dim(0), to.dim(1), to.dim(2), to.dim(3)};
  cuda::check(
      kernels::cuda::copy_rows(rows_of(to), rows_of(from), shape, from.dim(3), current_stream()),
      "attend: packing");
}

MutableTensorView dense(const TensorView& t, DType dtype, DeviceProblem& call) {
  const Shape shape{t.dim(0), t.dim(1), t.dim(2), padded_columns(t)};
  return {call.take(packed_bytes(t, dtype)), dtype, shape, t.device()};
}

}  // namespace

std::size_t packed_bytes(const TensorView& t, DType dtype) {
  if (used_in_place(t, dtype)) return 0;
  const dim_t rows = t.dim(0) * t.dim(1) * t.dim(2);
  return DeviceProblem::taken(static_cast<std::size_t>(rows * padded_columns(t)) *
                              item_size(dtype));
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
