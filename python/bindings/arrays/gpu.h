#pragma once

#include "bindings/arrays/arrays.h"

namespace cephalo::python {

// Where a call on arrays of a GPU is queued: on the stream that PyTorch or CuPy would use now. JAX
// has none to show. It makes its arrays ready for the default stream, as DLPack asks of it, and may
// give their memory to others once it has them back: such a call is waited for.
class WorkStream {
 public:
  explicit WorkStream(const ArrayIn& array);
  void* stream() const { return stream_; }  // null for arrays of the host
  void finish() const;                      // without the GIL, behind everything else

 private:
  Device device_;
  void* stream_ = nullptr;
  bool waits_ = false;
};

// Memory for a result on a GPU, where an argument is: PyTorch's own for its tensors and CuPy's for
// its arrays, since they know of graphs that are being captured, and which of their streams are
// still there; else ours, in the order of the current stream.
class ResultMemory {
 public:
  ResultMemory(const ArrayIn& like, const Shape& shape, DType dtype);
  const MutableTensorView& view() const { return view_; }
  AnyArray to_python() &&;

 private:
  Kind kind_;
  OwnedTensor of_torch_;
  nb::object of_cupy_;
  Tensor ours_;
  MutableTensorView view_;
};

}  // namespace cephalo::python
