#include "bindings/arrays/torch_names.h"

#include <atomic>
#include <memory>

namespace cephalo::python {
namespace {

namespace nb = nanobind;

// Not a function's static, for which others might wait with the GIL that this thread needs. Kept
// as long as the process, like PyTorch.
std::atomic<const TorchNames*> known{nullptr};

// While PyTorch is being imported it may not have them all.
std::unique_ptr<TorchNames> look_up() {
  const nb::object torch = imported("torch"), forward_ad = imported("torch.autograd.forward_ad");
  if (!torch.is_valid() || !forward_ad.is_valid() || !nb::hasattr(torch, "nn")) return nullptr;
  const nb::object parameter = nb::getattr(torch.attr("nn"), "Parameter", nb::none());
  const nb::object grad_mode = nb::getattr(torch, "is_grad_enabled", nb::none());
  if (parameter.is_none() || grad_mode.is_none()) return nullptr;
  return std::make_unique<TorchNames>(
      TorchNames{nb::object(torch.attr("Tensor")).release(), nb::object(parameter).release(),
                 nb::object(forward_ad).release(), nb::object(grad_mode).release()});
}

}  // namespace

nb::object imported(const char* module) {
  nb::object found = nb::steal(PyImport_GetModule(nb::str(module).ptr()));
  if (!found.is_valid() && PyErr_Occurred() != nullptr) throw nb::python_error();
  return found;
}

const TorchNames* known_torch_names() {
  return known;
}

const TorchNames* torch_names() {
  if (const TorchNames* names = known) return names;
  std::unique_ptr<TorchNames> names = look_up();
  if (names == nullptr) return nullptr;
  const TorchNames* expected = nullptr;
  if (!known.compare_exchange_strong(expected, names.get())) return expected;
  return names.release();
}

nb::handle interned(const char* name) {
  PyObject* text = PyUnicode_InternFromString(name);
  if (text == nullptr) nb::raise_python_error();
  return text;
}

}  // namespace cephalo::python
