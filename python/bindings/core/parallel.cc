#include "cephalo/core/parallel.h"

#include <dlfcn.h>
#include <nanobind/stl/optional.h>

#include <optional>

#include "bindings/bindings.h"
#include "cephalo/core/cpu.h"
#include "cephalo/core/team.h"

namespace cephalo::python {
namespace {

// Of the OpenMP runtime that the process has loaded: what g++ compiles `#pragma omp parallel` into.
// LLVM's and Intel's have the same entry.
void (*gomp_parallel)(void (*body)(void*), void* context, unsigned threads,
                      unsigned flags) = nullptr;
int (*omp_get_max_threads)() = nullptr;

// Always as many threads as the library takes that the team is borrowed from: OpenMP ends some and
// starts others where the number changes.
void run_openmp(void (*body)(void*), void* context) {
  gomp_parallel(body, context, static_cast<unsigned>(omp_get_max_threads()), 0);
}

bool use_openmp() {
  gomp_parallel = reinterpret_cast<decltype(gomp_parallel)>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
  omp_get_max_threads =
      reinterpret_cast<decltype(omp_get_max_threads)>(dlsym(RTLD_DEFAULT, "omp_get_max_threads"));
  const bool found = gomp_parallel != nullptr && omp_get_max_threads != nullptr;
  set_team(found ? run_openmp : nullptr);
  return found;
}

}  // namespace

void bind_parallel(nb::module_& m) {
  m.def(
      "threads",
      [](std::optional<int> count) {
        if (count) set_threads(*count);
        return threads();
      },
      "count"_a = nb::none(),
      "Sets how many threads each call uses (0: one per core) and returns that number.\n"
      "Results do not depend on it.");
  m.def("_use_openmp", &use_openmp,
        "Computes on the threads of the OpenMP runtime that this process has loaded from now on, "
        "if there\n"
        "is one that can be found. Returns whether there is.");
  m.def(
      "isa", [] { return name(current_isa()); },
      "The instruction set in use: avx512, avx2, sse4, neon or scalar.");
}

}  // namespace cephalo::python
