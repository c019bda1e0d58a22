#include "bindings/arrays/array.h"

#include <nanobind/stl/string.h>

#include <utility>

#include "bindings/arrays/arrays.h"
#include "bindings/bindings.h"
#include "cephalo/core/print.h"

namespace cephalo::python {
namespace {

nb::object capsule_of(std::shared_ptr<Tensor> tensor) {
  auto owned = std::make_unique<std::shared_ptr<Tensor>>(std::move(tensor));
  nb::capsule owner(owned.get(), [](void* memory) noexcept {
    delete static_cast<std::shared_ptr<Tensor>*>(memory);
  });
  static_cast<void>(owned.release());
  return owner;
}

nb::object to_list(const TensorView& view) {
  if (view.rank() == 0) {
    const double number = view.at({});
    if (view.dtype() == DType::i64) return nb::int_(static_cast<std::int64_t>(number));
    return nb::float_(number);
  }
  nb::list list;
  for (dim_t i = 0; i < view.dim(0); ++i) list.append(to_list(view[i]));
  return list;
}

// The buffer is the exporter's own: it keeps the memory, and lets go of it.
int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  const Array* array = nb::inst_ptr<Array>(self);
  return PyObject_GetBuffer(array->exporter().ptr(), view, flags);
}

PyType_Slot kBufferSlots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)}, {0, nullptr}};

std::string text_of(const Array& array) {
  return "Array(" + to_string(array.view()) + ", shape=" + to_tuple_string(array.view().shape()) +
         ", dtype=" + name(array.view().dtype()) + ")";
}

nb::tuple shape_tuple(const Array& array) {
  nb::list shape;
  for (const dim_t dim : array.view().shape()) shape.append(dim);
  return nb::tuple(shape);
}

}  // namespace

Array::Array(std::shared_ptr<Tensor> tensor)
    : view_(*tensor), exporter_(dlpack_object(view_, capsule_of(std::move(tensor)), false)) {}

Array::Array(const TensorView& view, nb::object owner) : Array(view, std::move(owner), true) {}

Array::Array(const TensorView& view, nb::object owner, bool read_only)
    : view_(view),
      exporter_(dlpack_object(view, std::move(owner), read_only)),
      read_only_(read_only) {}

Array Array::at(dim_t index) const {
  const dim_t length = view_.rank() == 0 ? 0 : view_.dim(0);
  if (index < -length || index >= length) throw nb::index_error("Array: index out of range");
  return {view_[index < 0 ? index + length : index], exporter_, read_only_};
}

void bind_array(nb::module_& m) {
  nb::class_<Array>(m, "Array", nb::type_slots(kBufferSlots),
                    "Numbers in memory, with the buffer protocol and DLPack: numpy.asarray(a), "
                    "torch.from_dlpack(a) and memoryview(a) share its memory. What calls return "
                    "that were given neither a NumPy array nor a PyTorch tensor.")
      .def_prop_ro("shape", &shape_tuple)
      .def_prop_ro("dtype", [](const Array& a) { return name(a.view().dtype()); })
      .def(
          "tolist", [](const Array& a) { return to_list(a.view()); },
          "Nested lists of floats, or ints.")
      .def("__len__", [](const Array& a) { return a.view().rank() == 0 ? 0 : a.view().dim(0); })
      .def("__getitem__", &Array::at, nb::arg("index"), "One entry of the first axis, not copied.")
      .def("__dlpack__",
           [](const Array& a, const nb::kwargs& options) {
             return a.exporter().attr("__dlpack__")(**options);
           })
      .def("__dlpack_device__",
           [](const Array& a) { return a.exporter().attr("__dlpack_device__")(); })
      .def("__repr__", &text_of);
}

}  // namespace cephalo::python
