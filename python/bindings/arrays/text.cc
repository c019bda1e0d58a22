#include "bindings/arrays/text.h"

#include "cephalo/core/format.h"

namespace cephalo::python {

namespace nb = nanobind;

TextIn::TextIn(nb::handle text, const char* function, const char* name)
    : source_(nb::borrow(text)) {
  Py_ssize_t size = 0;
  if (nb::isinstance<nb::str>(text)) {
    const char* letters = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
    if (letters == nullptr) throw nb::python_error();  // half a surrogate pair
    view_ = {letters, static_cast<std::size_t>(size)};
  } else if (nb::isinstance<nb::bytes>(text)) {
    char* bytes = nullptr;
    if (PyBytes_AsStringAndSize(text.ptr(), &bytes, &size) != 0) throw nb::python_error();
    view_ = {bytes, static_cast<std::size_t>(size)};
  } else {
    throw nb::type_error(format_text("{}: {} must be str or bytes, not {}", function, name,
                                     nb::str(text.type().attr("__name__")).c_str())
                             .c_str());
  }
}

bool is_text(nb::handle object) {
  return nb::isinstance<nb::str>(object) || nb::isinstance<nb::bytes>(object);
}

nb::bytes to_bytes(std::string_view bytes) {
  return nb::bytes(bytes.data(), bytes.size());
}

nb::str to_str(std::string_view bytes, const char* errors) {
  PyObject* text =
      PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), errors);
  if (text == nullptr) throw nb::python_error();
  return nb::steal<nb::str>(text);
}

}  // namespace cephalo::python
