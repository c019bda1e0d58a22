#include "bindings/arrays/gpu.h"

#include <utility>

#include "cephalo/core/allocator.h"

namespace cephalo::python {
namespace {

void* current_stream_of(Kind kind, Device device) {
  if (kind == Kind::cupy) {
    const nb::object current = nb::module_::import_("cupy.cuda").attr("get_current_stream");
    return reinterpret_cast<void*>(nb::cast<std::uintptr_t>(current().attr("ptr")));  // NOLINT
  }
  if (const auto stream = stream_by_exchange(device)) return *stream;
  const nb::object current = nb::module_::import_("torch.cuda").attr("current_stream");
  const auto stream = nb::cast<std::uintptr_t>(current(device.index).attr("cuda_stream"));
  return reinterpret_cast<void*>(stream);  // NOLINT: a handle, passed on
}

// CuPy allocates on its current GPU, which need not be that of an array.
class OnDeviceOf {
 public:
  explicit OnDeviceOf(nb::handle array) : device_(array.attr("device")) {
    device_.attr("__enter__")();
  }
  ~OnDeviceOf() {
    try {
      device_.attr("__exit__")(nb::none(), nb::none(), nb::none());
    } catch (nb::python_error& error) {
      error.discard_as_unraisable("cephalo: the current GPU of CuPy");
    }
  }
  OnDeviceOf(const OnDeviceOf&) = delete;
  OnDeviceOf& operator=(const OnDeviceOf&) = delete;

 private:
  nb::object device_;
};

nb::object cupy_empty(const ArrayIn& like, const Shape& shape, DType dtype) {
  nb::list sizes;
  for (const dim_t size : shape) sizes.append(size);
  // Types that only CuPy has a name for are the argument's own.
  const nb::object type = dtype == like.view().dtype() ? nb::object(like.source().attr("dtype"))
                                                       : nb::object(nb::str(name(dtype)));
  const OnDeviceOf device(like.source());
  return nb::module_::import_("cupy").attr("empty")(nb::tuple(sizes), type);
}

}  // namespace

WorkStream::WorkStream(const ArrayIn& array) : device_(array.view().device()) {
  if (device_.is_host()) return;
  waits_ = array.kind() == Kind::jax;
  if (!waits_) stream_ = current_stream_of(array.kind(), device_);
}

void WorkStream::finish() const {
  if (!waits_) return;
  const UseStream use(stream_);
  allocator_of(device_).wait();
}

ResultMemory::ResultMemory(const ArrayIn& like, const Shape& shape, DType dtype)
    : kind_(like.kind()) {
  const Device device = like.view().device();
  if (kind_ == Kind::torch) of_torch_ = allocate_by_exchange(shape, to_dlpack(dtype), device);
  if (of_torch_ != nullptr) {
    const nb::dlpack::dltensor& tensor = of_torch_->tensor;
    view_ = {static_cast<std::byte*>(tensor.data) + tensor.byte_offset, dtype, shape, device};
  } else if (kind_ == Kind::cupy) {
    of_cupy_ = cupy_empty(like, shape, dtype);
    const auto address = nb::cast<std::uintptr_t>(of_cupy_.attr("data").attr("ptr"));
    view_ = {reinterpret_cast<void*>(address), dtype, shape, device};  // NOLINT: CuPy says it so
  } else {
    ours_ = Tensor::empty(shape, dtype, device);
    view_ = ours_.mutable_view();
  }
}

AnyArray ResultMemory::to_python() && {
  if (of_torch_ != nullptr) return nb::borrow<AnyArray>(made_by_exchange(std::move(of_torch_)));
  if (of_cupy_.is_valid()) return nb::borrow<AnyArray>(of_cupy_);
  return python::to_python(std::move(ours_), kind_);
}

}  // namespace cephalo::python
