#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <string_view>

namespace cephalo::python {

// Text of the caller's, looked at where it lies: a str as UTF-8, bytes as they are.
class TextIn {
 public:
  TextIn(nanobind::handle text, const char* function, const char* name);
  std::string_view view() const { return view_; }
  std::string copy() const { return std::string(view_); }

 private:
  nanobind::object source_;
  std::string_view view_;
};

bool is_text(nanobind::handle object);  // a str or bytes

nanobind::bytes to_bytes(std::string_view bytes);
// errors: what becomes of bytes that are no UTF-8, as in bytes.decode.
nanobind::str to_str(std::string_view bytes, const char* errors = "replace");

}  // namespace cephalo::python
