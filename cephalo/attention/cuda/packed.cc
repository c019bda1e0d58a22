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

TensorView packed(const TensorView& t, DeviceProblem& call) {
  if (used_in_place(t, t.dtype())) return t;
  const MutableTensorView result = dense(t, t.dtype(), call);
  copy(result, t);
  return result;
}

std::size_t parts_bytes(const TensorView& t, const OperandSize& size) {
  const dim_t numbers = t.dim(0) * t.dim(1) * t.dim(2) * size.width * size.parts;
  return DeviceProblem::taken(static_cast<std::size_t>(numbers) * item_size(DType::bf16));
}

TensorView split(const TensorView& t, const OperandSize& size, DeviceProblem& call,
                 const RowCare& care) {
  kernels::cuda::SplitRows args{};
  args.to = static_cast<std::uint16_t*>(call.take(parts_bytes(t, size)));
  args.from = rows_of(t);
  args.batch = t.dim(0);
  args.heads = t.dim(1);
  args.tokens = t.dim(2);
  args.columns = static_cast<int>(t.dim(3));
  args.width = size.width;
  args.parts = size.parts;
  args.clears = care.clears;
  if (care.marks != nullptr) {
    args.marks = static_cast<std::uint16_t*>(const_cast<void*>(care.marks->data()));
    args.mark_stride = care.marks->dim(3);
  }
  cuda::check(kernels::cuda::split_rows(args, current_stream()), "attend: splitting");
  const Shape shape{t.dim(0), t.dim(1), t.dim(2), dim_t{size.width} * size.parts};
  return {args.to, DType::bf16, shape, t.device()};
}

}  // namespace

std::size_t packed_bytes(const TensorView& t, DType dtype) {
  if (used_in_place(t, dtype)) return 0;
  const dim_t rows = t.dim(0) * t.dim(1) * t.dim(2);
  return DeviceProblem::taken(static_cast<std::size_t>(rows * padded_columns(t)) *
                              item_size(dtype));
}

std::size_t operand_bytes(const TensorView& t, const OperandSize& size) {
  return size.parts == 1 ? packed_bytes(t, t.dtype()) : parts_bytes(t, size);
}

TensorView operand(const TensorView& t, const OperandSize& size, DeviceProblem& call,
                   const RowCare& care) {
  return size.parts == 1 ? packed(t, call) : split(t, size, call, care);
}

kernels::cuda::TensorMap operand_map(const TensorView& operand, const OperandSize& size) {
  return make_tensor_map(operand, {size.rows, size.width * size.parts});
}

MutableTensorView packed_result(const MutableTensorView& t, DType dtype, DeviceProblem& call) {
  return used_in_place(t, dtype) ? t : dense(t, dtype, call);
}

void write_back(const MutableTensorView& t, const TensorView& result) {
  if (result.data() != t.data()) copy(t, result);
}

}  // namespace cephalo
