#include <new>
#include <string>

#include "bindings/bindings.h"
#include "cephalo/core/error.h"
#include "cephalo/core/printable.h"

namespace cephalo::python {

// cephalo::Error becomes the exception that Python has for it, with the same text but for
// control characters.
void bind_errors() {
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const Error& error) {
      // Names out of files are in it, and a traceback goes to a terminal.
      const std::string text = printable(error.what());
      switch (error.kind()) {
        case Error::Kind::value:
          return PyErr_SetString(PyExc_ValueError, text.c_str());
        case Error::Kind::type:
          return PyErr_SetString(PyExc_TypeError, text.c_str());
        case Error::Kind::io:
          return PyErr_SetString(PyExc_OSError, text.c_str());
        case Error::Kind::memory:
          return PyErr_SetString(PyExc_MemoryError, text.c_str());
      }
    }
  });
}

}  // namespace cephalo::python
