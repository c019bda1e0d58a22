#include "bindings/arrays/refusals.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <utility>

#include "bindings/arrays/arrays.h"
#include "bindings/arrays/torch_names.h"
#include "cephalo/core/format.h"

namespace cephalo::python {
namespace {

namespace nb = nanobind;

std::string text_of(nb::handle object) {
  return nb::str(object).c_str();
}

[[noreturn]] void fail_type(const std::string& message) {
  throw nb::type_error(message.c_str());
}

[[noreturn]] void refuse_device_called(const std::string& who, const std::string& device) {
  fail_type(format_text("{} is on device {}; cephalo computes on the CPU: move it there first", who,
                        device));
}

[[noreturn]] void refuse_dtype_called(const std::string& who, const std::string& dtype) {
  fail_type(
      format_text("{} is of dtype {}; supported are float32, float64, float16 and bfloat16, bool "
                  "and integers in masks, int32 and int64 as token ids",
                  who, dtype));
}

std::string device_name(int type, int id) {
  switch (type) {
    case nb::device::cuda::value:
    case nb::device::cuda_managed::value:
      return format_text("cuda:{}", id);
    case nb::device::metal::value:
      return format_text("metal:{}", id);
    case nb::device::rocm::value:
      return format_text("rocm:{}", id);
    default:
      return format_text("number {} of DLPack's kind {}", id, type);
  }
}

// An object that has memory elsewhere, or, as PyTorch's meta tensors, nowhere.
void refuse_by_device(nb::handle array, const std::string& who) {
  if (!nb::hasattr(array, "__dlpack_device__")) return;
  std::pair<int, int> device;
  try {
    device = nb::cast<std::pair<int, int>>(array.attr("__dlpack_device__")());
  } catch (const std::exception& error) {
    const auto* raised = dynamic_cast<const nb::python_error*>(&error);
    if (raised != nullptr && !raised->matches(PyExc_Exception)) throw;
    const nb::object named = nb::getattr(array, "device", nb::none());
    if (!named.is_none() && text_of(named) != "cpu") refuse_device_called(who, text_of(named));
    return;
  }
  if (!is_on_cpu(device.first)) refuse_device(who, device.first, device.second);
}

void refuse_by_layout(nb::handle array, const std::string& who) {
  const nb::object layout = nb::getattr(array, "layout", nb::none());
  if (layout.is_none() || text_of(layout) == "torch.strided") return;
  fail_type(format_text("{} is of layout {}; a dense array is needed", who, text_of(layout)));
}

std::string class_name(nb::handle object) {
  return text_of(object.type().attr("__name__"));
}

// A PyTorch tensor of the right type without memory: inside of torch.func.vmap, for one. It says
// so.
void refuse_by_its_word(nb::handle array, const std::string& who) {
  if (kind_of(array) != Kind::torch) return;
  try {
    array.attr("__dlpack__")();
  } catch (const nb::python_error& error) {
    if (!error.matches(PyExc_Exception)) throw;
    fail_type(format_text("{} cannot be read: {}", who, text_of(error.value())));
  }
}

// A Buffer is a plain Tensor. Other subclasses may keep what they mean outside of their memory, as
// CausalBias does, whose memory is never written to.
void refuse_subclass(nb::handle tensor, const TorchNames& torch, const Who& who) {
  const nb::handle type = tensor.type();
  if (type.is(torch.tensor) || type.is(torch.parameter)) return;
  fail_type(
      format_text("{} is {}; of the subclasses of torch.Tensor only Parameter and Buffer are "
                  "accepted: others may mean something that their memory does not say",
                  std::string(who), with_article(class_name(tensor))));
}

nb::object attribute(nb::handle object, nb::handle name) {
  nb::object value = nb::steal(PyObject_GetAttr(object.ptr(), name.ptr()));
  if (!value.is_valid()) nb::raise_python_error();
  return value;
}

// Inside of torch.autograd.forward_ad.dual_level() tensors carry a tangent beside their memory.
void refuse_tangent(nb::handle tensor, const TorchNames& torch, const Who& who) {
  static const nb::handle current_level = interned("_current_level");
  const nb::object level = attribute(torch.forward_ad, current_level);
  if (nb::cast<int>(level) < 0) return;  // no such level is open: the usual case, told cheaply
  if (torch.forward_ad.attr("unpack_dual")(tensor).attr("tangent").is_none()) return;
  fail_type(
      format_text("{} carries a forward-mode tangent, which would be lost: derivatives are "
                  "computed backwards only",
                  std::string(who)));
}

}  // namespace

Who::operator std::string() const {
  return format_text("{}: {}", function_, name_);
}

std::string with_article(const std::string& noun) {
  const bool vowel =
      noun.find_first_of("aeiouAEIOU") == 0 || noun.starts_with("nd");  // "an ndarray"
  return (vowel ? "an " : "a ") + noun;
}

bool is_on_cpu(int device_type) {
  return device_type == nb::device::cpu::value || device_type == nb::device::cuda_host::value ||
         device_type == nb::device::rocm_host::value;
}

void refuse_device(const std::string& who, int device_type, int device_id) {
  refuse_device_called(who, device_name(device_type, device_id));
}

void refuse_dtype(nb::handle array, const std::string& who) {
  if (nb::hasattr(array, "dtype")) refuse_dtype_called(who, text_of(array.attr("dtype")));
  const nb::object view = nb::steal(PyMemoryView_FromObject(array.ptr()));
  if (view.is_valid()) {
    refuse_dtype_called(who, format_text("'{}'", nb::cast<std::string>(view.attr("format"))));
  }
  PyErr_Clear();
  refuse_dtype_called(who, "unknown");
}

void refuse_read_only(const std::string& who) {
  throw nb::value_error(format_text("{} is read-only", who).c_str());
}

void refuse(nb::handle array, const std::string& who, bool to_write) {
  PyErr_Clear();
  refuse_by_device(array, who);
  refuse_by_layout(array, who);
  refuse_by_its_word(array, who);
  if (to_write) {
    nb::ndarray<nb::ro> readable;
    if (nb::try_cast(array, readable)) refuse_read_only(who);
    PyErr_Clear();
  }
  if (nb::hasattr(array, "dtype") || PyObject_CheckBuffer(array.ptr()) != 0) {
    refuse_dtype(array, who);
  }
  fail_type(
      format_text("{} is {}; an array is needed, with DLPack or the buffer protocol (NumPy, "
                  "PyTorch, memoryview)",
                  who, with_article(class_name(array))));
}

void refuse_tensor_state(nb::handle tensor, const Who& who) {
  static const nb::handle requires_grad = interned("requires_grad"), is_neg = interned("is_neg");
  const TorchNames* torch = torch_names();
  if (torch == nullptr) fail_type(format_text("{}: PyTorch is not imported yet", std::string(who)));
  refuse_subclass(tensor, *torch, who);
  refuse_tangent(tensor, *torch, who);
  if (attribute(tensor, requires_grad).is(Py_True)) {
    if (nb::cast<bool>(torch->is_grad_enabled())) {
      fail_type(
          format_text("{} requires grad, and no gradient would come back: pass its detach(), "
                      "or call under torch.no_grad()",
                      std::string(who)));
    }
  }
  const nb::object is_negative =
      nb::steal(PyObject_CallMethodObjArgs(tensor.ptr(), is_neg.ptr(), nullptr));
  if (!is_negative.is_valid()) nb::raise_python_error();
  if (is_negative.is(Py_True)) {
    fail_type(format_text("{} stands for the negative of its memory: pass its resolve_neg()",
                          std::string(who)));
  }
}

void refuse_masked_array(nb::handle array, const Who& who) {
  const nb::object masked = imported("numpy.ma");
  if (!masked.is_valid() || !nb::isinstance(array, masked.attr("MaskedArray"))) return;
  fail_type(
      format_text("{} is a numpy.ma.MaskedArray, whose mask would be lost: pass its filled(...), "
                  "and what it hides as a mask of attention (keep, drop)",
                  std::string(who)));
}

}  // namespace cephalo::python
