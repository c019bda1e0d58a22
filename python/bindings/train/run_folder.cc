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
                        "exists, no other process can train there.")
      .def(
          "__init__",
          [](RunFolder* self, const std::filesystem::path& path, int keep) {
            new (self) RunFolder(path.string(), keep);
          },
          "path"_a, "keep"_a = 2,
          "Creates the folder if needed, locks it, and removes what an interrupted save\n"
          "left behind. keep: how many of the newest checkpoints to keep.")
      .def_prop_ro("path", &RunFolder::path)
      .def_prop_ro("steps", &RunFolder::steps, "The steps that have a checkpoint, ascending.")
      .def("checkpoint", &RunFolder::checkpoint, "step"_a, "The path of that step's checkpoint.")
      .def("set_aside", &RunFolder::set_aside, "step"_a,
           "Renames a checkpoint that cannot be read, so that it no longer counts as one.")
      .def_prop_ro("repairs", &RunFolder::repairs,
                   "What was repaired when the folder was opened; empty if nothing was.")
      .def("__repr__", [](const RunFolder& f) { return format_text("RunFolder('{}')", f.path()); });
}

}  // namespace cephalo::python
