#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "cephalo/core/tensor.h"

namespace cephalo::python {

// PyTorch's tensors give and take DLPack by a table of C functions on their type: a tenth of the
// time of __dlpack__() and from_dlpack(), which run in Python. The structs are DLPack's.
struct ManagedTensor {
  std::uint32_t major, minor;
  void* manager;
  void (*deleter)(ManagedTensor*);
  std::uint64_t flags;
  nanobind::dlpack::dltensor tensor;

  bool is_read_only() const { return (flags & 1U) != 0; }
};

struct LetGo {
  void operator()(ManagedTensor* tensor) const {
    if (tensor->deleter != nullptr) tensor->deleter(tensor);
  }
};
using OwnedTensor = std::unique_ptr<ManagedTensor, LetGo>;

// The tensor, for as long as somebody holds it; null when its type has no such table or refuses.
std::shared_ptr<ManagedTensor> import_by_exchange(nanobind::handle tensor);

// What a tensor on a GPU is now, without taking part in its memory; nothing for others, and until a
// first one was imported, so that those of the host are not asked twice.
std::optional<nanobind::dlpack::dltensor> look_on_gpu(nanobind::handle tensor);

// The stream that tensors of the kind that came in last are computed on; nothing when none did.
std::optional<void*> stream_by_exchange(Device device);

// DLPack's number of a device's kind.
int dlpack_device(Device device);

// Dense memory of the kind of tensor that came in last, from its library's own allocator; null when
// none did, or it has none.
OwnedTensor allocate_by_exchange(const Shape& shape, nanobind::dlpack::dtype dtype, Device device);
// The tensor over that memory.
nanobind::object made_by_exchange(OwnedTensor memory);

// The same way back, to the kind of tensor that came in last; an invalid object when none did.
nanobind::object export_by_exchange(Tensor& tensor, nanobind::dlpack::dtype dtype);

}  // namespace cephalo::python
