#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <functional>

#include "bindings/arrays/gil.h"

namespace cephalo::python {

// Raises KeyboardInterrupt where Ctrl-C was pressed since Python last looked. Wants the GIL.
inline void check_signals() {
  if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
}

// A function of the caller's, or None. It is called from C++ that has released the GIL; what it
// raises passes through C++ and reaches the caller.
class Callback {
 public:
  Callback(nanobind::object function, const char* who, const char* name);

  bool given() const { return !function_.is_none(); }

  // use(result) runs with the GIL, too.
  template <typename Use, typename... Args>
  void call(const Use& use, const Args&... args) const {
    const WithGil held;
    in_python([&] { use(function_(args...)); });
  }
  template <typename... Args>
  void operator()(const Args&... args) const {
    call([](const nanobind::object&) {}, args...);
  }

 private:
  nanobind::object function_;
};

// progress(done, all), for work that takes a while. Ctrl-C ends it, with or without a function.
std::function<void(std::int64_t, std::int64_t)> progress_of(const Callback& progress);

}  // namespace cephalo::python
