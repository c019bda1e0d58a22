#pragma once

#include <nanobind/nanobind.h>

namespace cephalo::python {

// What every call on PyTorch's tensors asks PyTorch for, looked up once: a lookup by name is a
// hundredth of a small call, and there would be dozens of them.
struct TorchNames {
  nanobind::handle tensor, parameter;  // the classes
  nanobind::handle forward_ad;         // the module
  nanobind::handle is_grad_enabled;    // the function
};

// Null until somebody has imported PyTorch, and of those that are known already, until somebody has
// asked.
const TorchNames* torch_names();
const TorchNames* known_torch_names();

// A module that somebody has imported, else an invalid object: nothing of it can be in use.
nanobind::object imported(const char* module);

// An attribute's name as Python keeps those that stand in its own code: PyTorch finds it sooner.
nanobind::handle interned(const char* name);

}  // namespace cephalo::python
