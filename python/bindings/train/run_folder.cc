#include "cephalo/train/run_folder.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <filesystem>
#include <new>

#include "bindings/bindings.h"
#include "cephalo/core/format.h"

namespace cephalo::python {

void bind_run_folder(nb::module_& m) {
  nb::class_<RunFolder>(m, "RunFolder",
                        "The folder of one training run, with its checkpoints; while the object "
                        "lives, no other process trains there.")
      .def(
          "__init__",
          [](RunFolder* self, const std::filesystem::path& path, int keep) {
            new (self) RunFolder(path.string(), keep);
          },
          "path"_a, "keep"_a = 2,
          "Makes the folder where it is missing, locks it, and removes what an interrupted save\n"
          "left. keep: how many of the newest checkpoints stay.")
      .def_prop_ro("path", &RunFolder::path)
      .def_prop_ro("steps", &RunFolder::steps, "That have a checkpoint, ascending.")
      .def("checkpoint", &RunFolder::checkpoint, "step"_a, "The path of that step's checkpoint.")
      .def("set_aside", &RunFolder::set_aside, "step"_a,
           "A checkpoint that cannot be read gets another name, and is none any more.")
      .def_prop_ro("repairs", &RunFolder::repairs,
                   "What was put right when it was opened; empty when all was well.")
      .def("__repr__", [](const RunFolder& f) { return format_text("RunFolder('{}')", f.path()); });
}

}  // namespace cephalo::python
