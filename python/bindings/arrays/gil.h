#pragma once

#include <nanobind/nanobind.h>

#if __has_include(<cxxabi.h>)
#include <cxxabi.h>
#endif

namespace cephalo::python {

// A daemon thread that wants the GIL once the interpreter has finished is ended by Python, up to
// 3.13 by pthread_exit: that unwinds the stack, and destructors and catch (...) of C++ are no place
// to pass, so the process would abort. The thread stays here instead until the process ends, which
// is what Python does itself from 3.14 on.
[[noreturn]] void stay_until_the_process_ends();

// Without the GIL while it lives: nb::gil_scoped_release, but for that.
class WithoutGil {
 public:
  WithoutGil() : thread_(PyEval_SaveThread()) {}
  ~WithoutGil() {
    try {
      PyEval_RestoreThread(thread_);
    } catch (...) {
      stay_until_the_process_ends();
    }
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* thread_;
};

// With the GIL while it lives: nb::gil_scoped_acquire, but for that.
class WithGil {
 public:
  WithGil() : state_(acquired()) {}
  ~WithGil() { PyGILState_Release(state_); }
  WithGil(const WithGil&) = delete;
  WithGil& operator=(const WithGil&) = delete;

 private:
  static PyGILState_STATE acquired() {
    try {
      return PyGILState_Ensure();
    } catch (...) {
      stay_until_the_process_ends();
    }
  }
  PyGILState_STATE state_;
};

// body() runs a function of the caller's, which lets go of the GIL and takes it again itself.
template <typename Body>
auto in_python(const Body& body) {
#if defined(__GLIBCXX__)
  try {
    return body();
  } catch (const abi::__forced_unwind&) {
    stay_until_the_process_ends();
  }
#else
  return body();
#endif
}

}  // namespace cephalo::python
