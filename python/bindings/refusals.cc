#include "bindings/refusals.h"

#include <fmt/format.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <utility>

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
  fail_type(fmt::format("{} is on device {}; cephalo computes on the CPU: move it there first", who,
                        device));
}

[[noreturn]] void refuse_dtype_called(const std::string& who, const std::string& dtype) {
  fail_type(
      fmt::format("{} is of dtype {}; taken are float32, float64, float16 and bfloat16, bool "
                  "and integers in masks, int32 and int64 as token ids",
                  who, dtype));
}

std::string device_name(int type, int id) {
  switch (type) {
    case nb::device::cuda::value:
    case nb::device::cuda_managed::value:
      return fmt::format("cuda:{}", id);
    case nb::device::metal::value:
      return fmt::format("metal:{}", id);
    case nb::device::rocm::value:
      return fmt::format("rocm:{}", id);
    default:
      return fmt::format("number {} of DLPack's kind {}", id, type);
  }
}

// An object that has memory elsewhere, or, as PyTorch's meta tensors, nowhere.
void refuse_by_device(nb::handle array, const std::string& who) {
  if (!nb::hasattr(array, "__dlpack_device__")) return;
  std::pair<int, int> device;
  try {
    device = nb::cast<std::pair<int, int>>(array.attr("__dlpack_device__")());
  } catch (const std::exception&) {
    if (nb::hasattr(array, "device")) refuse_device_called(who, text_of(array.attr("device")));
    return;
  }
  if (!is_on_cpu(device.first)) refuse_device(who, device.first, device.second);
}

void refuse_by_layout(nb::handle array, const std::string& who) {
  const nb::object layout = nb::getattr(array, "layout", nb::none());
  if (layout.is_none() || text_of(layout) == "torch.strided") return;
  fail_type(fmt::format("{} is of layout {}; a dense array is needed", who, text_of(layout)));
}

std::string class_name(nb::handle object) {
  return text_of(object.type().attr("__name__"));
}

// A Buffer is a plain Tensor. Other subclasses may keep what they mean outside of their memory, as
// CausalBias does, whose memory is never written to.
void refuse_subclass(nb::handle tensor, const nb::object& torch, const std::string& who) {
  const nb::handle type = tensor.type();
  if (type.is(torch.attr("Tensor")) || type.is(torch.attr("nn").attr("Parameter"))) return;
  fail_type(
      fmt::format("{} is {}; of the subclasses of torch.Tensor only Parameter and Buffer are "
                  "taken: others may mean something that their memory does not say",
                  who, with_article(class_name(tensor))));
}

}  // namespace

std::string with_article(const std::string& noun) {
  const bool vowel = noun.find_first_of("aeiouAEIOU") == 0 || noun.starts_with("nd");  // "an ndarray"
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
    refuse_dtype_called(who, fmt::format("'{}'", nb::cast<std::string>(view.attr("format"))));
  }
  PyErr_Clear();
  refuse_dtype_called(who, "unknown");
}

void refuse_read_only(const std::string& who) {
  throw nb::value_error(fmt::format("{} is read-only", who).c_str());
}

void refuse(nb::handle array, const std::string& who, bool to_write) {
  PyErr_Clear();
  refuse_by_device(array, who);
  refuse_by_layout(array, who);
  if (to_write) {
    nb::ndarray<nb::ro> readable;
    if (nb::try_cast(array, readable)) refuse_read_only(who);
    PyErr_Clear();
  }
  if (nb::hasattr(array, "dtype") || PyObject_CheckBuffer(array.ptr()) != 0) {
    refuse_dtype(array, who);
  }
  fail_type(
      fmt::format("{} is {}; an array is needed, with DLPack or the buffer protocol (NumPy, "
                  "PyTorch, memoryview)",
                  who, with_article(class_name(array))));
}

void refuse_tensor_state(nb::handle tensor, const std::string& who) {
  const nb::object torch = nb::module_::import_("torch");
  refuse_subclass(tensor, torch, who);
  if (nb::cast<bool>(tensor.attr("requires_grad"))) {
    if (nb::cast<bool>(torch.attr("is_grad_enabled")())) {
      fail_type(
          fmt::format("{} requires grad, and no gradient would come back: pass its detach(), "
                      "or call under torch.no_grad()",
                      who));
    }
  }
  if (nb::cast<bool>(tensor.attr("is_neg")())) {
    fail_type(fmt::format("{} stands for the negative of its memory: pass its resolve_neg()", who));
  }
}

}  // namespace cephalo::python
