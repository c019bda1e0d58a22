#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "cephalo/core/tensor.h"

namespace cephalo::python {

// The array of those who have no NumPy: what results are for callers of buffers, and what a call
// without any array gives where NumPy is not installed. It has the buffer protocol and DLPack.
class Array {
 public:
  explicit Array(std::shared_ptr<Tensor> tensor);         // writable
  Array(const TensorView& view, nanobind::object owner);  // read-only
  Array(const TensorView& view, nanobind::object owner, bool read_only);

  const TensorView& view() const { return view_; }
  const nanobind::object& exporter() const { return exporter_; }  // whose buffer and DLPack it is
  Array at(dim_t index) const;                                    // one rank less, same memory

 private:
  TensorView view_;
  nanobind::object exporter_;
  bool read_only_ = false;
};

// An object with the buffer protocol and DLPack over memory that `owner` keeps.
nanobind::object dlpack_object(const TensorView& view, nanobind::handle owner, bool read_only);

}  // namespace cephalo::python
