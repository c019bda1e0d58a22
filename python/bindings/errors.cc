#include <new>

#include "bindings/bindings.h"
#include "cephalo/core/error.h"

namespace cephalo::python {

// cephalo::Error becomes the exception that Python has for it, with the same text.
void bind_errors() {
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const Error& error) {
      switch (error.kind()) {
        case Error::Kind::value:
          return PyErr_SetString(PyExc_ValueError, error.what());
        case Error::Kind::type:
          return PyErr_SetString(PyExc_TypeError, error.what());
        case Error::Kind::io:
          return PyErr_SetString(PyExc_OSError, error.what());
        case Error::Kind::memory:
          return PyErr_SetString(PyExc_MemoryError, error.what());
      }
    }
  });
}

}  // namespace cephalo::python
