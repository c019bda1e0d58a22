#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <memory>
#include <optional>
#include <string>

#include "bindings/arrays/exchange.h"
#include "bindings/arrays/refusals.h"
#include "cephalo/core/tensor.h"

namespace cephalo::python {

namespace nb = nanobind;

// Whose arrays the caller uses, told by the module of their type: nothing is imported for it.
enum class Kind { numpy, torch, jax, cupy, plain };
Kind kind_of(nb::handle array);

// Does an array say so itself, by DLPack?
bool is_on_gpu(nb::handle array);

// An array of the caller's as stubs and signatures show it.
class AnyArray : public nb::object {
  NB_OBJECT_DEFAULT(AnyArray, nb::object, "typing.Any", AnyArray::takes)
  static bool takes(PyObject*) { return true; }
};

// What holds an array's memory: PyTorch's by its table of C functions, the others by nanobind.
template <typename Array>
struct Memory {
  Array array;
  std::shared_ptr<ManagedTensor> tensor;
};

// What is taken besides the usual: unsigned integers, memory of a GPU, for one call alone.
struct Taken {
  bool unsigned_too = false, on_gpu = false, for_call = false;
};

// An argument that is an array, looked at where it lies: DLPack, else the buffer protocol. It keeps
// the memory alive, and NumPy and buffers from being resized. An array that cannot be taken is a
// TypeError that names function, argument and what is wrong with it.
class ArrayIn {
 public:
  ArrayIn() = default;  // absent: an empty view
  ArrayIn(nb::handle array, const char* function, const char* name);
  // The same for keep and drop, which ask of integers only whether they are zero.
  static ArrayIn mask(nb::handle array, const char* function);
  // PyTorch's, CuPy's and JAX's may be on a GPU that this build computes on; the others' are
  // refused there.
  static ArrayIn anywhere(nb::handle array, const char* function, const char* name);
  // The same for one call, during which the caller holds the array. Of tensors on a GPU it takes
  // less time: they are looked at alone. Nobody needs more, since memory there that is given back
  // during the call goes to whoever is next in the stream.
  static ArrayIn argument(nb::handle array, const char* function, const char* name);

  const TensorView& view() const { return view_; }
  operator const TensorView&() const { return view_; }  // NOLINT: it stands for what it looks at
  Kind kind() const { return kind_; }
  nb::handle source() const { return source_; }  // the caller's array itself

 private:
  ArrayIn(nb::handle array, const Who& who, const Taken& taken);

  nb::object source_;
  Memory<nb::ndarray<nb::ro>> memory_;
  TensorView view_;
  Kind kind_ = Kind::plain;
};

// Memory of the caller's to write to (out=), refused like an argument; a read-only one too.
class ArrayOut {
 public:
  ArrayOut(nb::handle array, const char* function, const char* name, const Taken& taken = {});
  const MutableTensorView& view() const { return view_; }

 private:
  nb::object source_;
  Memory<nb::ndarray<>> memory_;
  MutableTensorView view_;
};

nb::dlpack::dtype to_dlpack(DType dtype);

// A result becomes an array of the caller's kind over the same memory. bfloat16 for NumPy is that
// of ml_dtypes, without which there would be no such array to begin with.
AnyArray to_python(Tensor&& tensor, Kind kind);

// The same for what is not there unless asked for: None.
nb::object to_python_or_none(Tensor&& tensor, Kind kind, bool asked);

// For results of calls that bring no array: NumPy where it is installed.
Kind kind_without_caller(DType dtype);

// A read-only array of that kind over memory that `owner` keeps.
AnyArray borrowed_to_python(const TensorView& view, nb::handle owner);
// The same to write to.
AnyArray borrowed_to_python(const MutableTensorView& view, nb::handle owner);

}  // namespace cephalo::python
