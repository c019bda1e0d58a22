"""Includes point one way: core <- world, mask, io, kernels <- linear, text, embed <- attention <- model
<- train, effects <- view <- learn."""

import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[1]

# A folder may include itself and these; cli, tests, examples and bench may use anything.
MAY_INCLUDE = {
    "core": set(),
    "world": {"core"},
    "mask": {"core"},
    "io": {"core"},
    "kernels": {"core"},
    "linear": {"core", "kernels"},
    "text": {"core", "io"},
    "embed": {"core", "io", "linear"},
    "attention": {"core", "world", "mask", "io", "kernels", "linear"},
    "model": {"core", "world", "mask", "io", "linear", "text", "embed", "attention"},
    "train": {"core", "world", "mask", "io", "linear", "text", "embed", "attention", "model"},
    "effects": {"core", "mask", "io", "linear", "text", "embed", "attention", "model"},
    "view": {"core", "mask", "io", "linear", "text", "embed", "attention", "model", "effects"},
    "learn": {"core", "mask", "io", "text", "embed", "attention", "model", "train", "effects",
              "view"},
}
# The header that includes everything, and the C interface over everything.
TOP_LEVEL = {"cephalo.h", "attention.h", "c_api.h", "c_api.cc", "c_api_support.h", "c_api_support.cc",
             "c_api_train.cc"}
INCLUDE = re.compile(r'^\s*#include\s+["<](cephalo|cli|tests|examples|bench)/([^/">]+)', re.MULTILINE)


def sources():
    return [p for p in (ROOT / "cephalo").rglob("*") if p.suffix in (".h", ".cc", ".cu", ".cuh", ".in")]


def bindings():
    return sorted((ROOT / "python" / "bindings").rglob("*.*"))


class Layering(unittest.TestCase):
    def test_includes_point_one_way(self):
        self.assertGreater(len(sources()), 30)
        wrong = []
        for path in sources():
            folder = path.relative_to(ROOT / "cephalo").parts[0]
            if folder in TOP_LEVEL:
                continue
            self.assertIn(folder, MAY_INCLUDE, f"{path}: a new folder needs a place in the order")
            for top, target in INCLUDE.findall(path.read_text()):
                if top != "cephalo" or (target != folder and target not in MAY_INCLUDE[folder]):
                    wrong.append(f"{path.relative_to(ROOT)} includes {top}/{target}")
        self.assertEqual(wrong, [])

    def test_models_compute_by_ops(self):
        """Which a device can have its own of. Neither a table of kernels nor threads over rows."""
        for path in sources():
            if path.relative_to(ROOT / "cephalo").parts[0] in ("embed", "model", "train", "effects", "view"):
                text = path.read_text()
                self.assertNotRegex(text, r"\bkernels::|_kernels<", path)
                self.assertNotRegex(text, r"\bparallel_for\b", path)

    def test_public_headers_reach_no_private_room(self):
        """What cephalo.h, attention.h and c_api.h include is installed; trace.h is the exception."""
        private = re.compile(r"cephalo/(kernels|linear|world/mpi|attention/(cuda|engine|fused|reference))/")
        reached = {"cephalo/cephalo.h", "cephalo/attention.h", "cephalo/c_api.h"}
        unread = list(reached)
        while unread:
            path = ROOT / unread.pop()
            if not path.exists():  # version.h is made by the build
                continue
            for header in re.findall(r'#include "(cephalo/[^"]+)"', path.read_text()):
                if header not in reached:
                    reached.add(header)
                    unread.append(header)
        self.assertGreater(len(reached), 60)
        self.assertEqual([h for h in sorted(reached)
                          if private.match(h) and not h.endswith("reference/trace.h")], [])

    def test_cuda_appears_in_its_rooms(self):
        """And its headers in no header of ours: who uses them needs no toolkit."""
        for path in sources():
            includes = re.search(r"#include <(cuda|cuda_runtime|cuda_runtime_api|math_constants)\.h>",
                                 path.read_text())
            if includes:
                self.assertTrue(path.parent.name == "cuda" or path.name == "cuda_device.cc", path)
                self.assertNotEqual(path.suffix, ".h", path)

    def test_mpi_appears_in_its_room(self):
        """And in no header: who uses a world needs no MPI."""
        includers = [path for path in sources() if "<mpi.h>" in path.read_text()]
        self.assertEqual([str(p.relative_to(ROOT)) for p in includers], ["cephalo/world/mpi/mpi_world.cc"])

    def test_fmt_is_compiled_once(self):
        """Behind core/format.h, which public headers do not need either."""
        inside = {"fail.h", "format.h", "memory_limit.h", "printable.h", "visit.h"}
        for path in [*sources(), *bindings(), *(ROOT / "cli").rglob("*.*")]:
            if path.name == "format.cc":
                continue
            text = path.read_text()
            self.assertNotIn("<fmt/", text, path)
            if path.suffix == ".h" and path.name not in inside and "cephalo" == path.relative_to(ROOT).parts[0]:
                self.assertNotRegex(text, r"core/(fail|format)\.h", path)

    def test_cli11_is_compiled_once(self):
        """Behind cli/command.h: it costs seconds in every source that includes it."""
        files = sorted((ROOT / "cli").rglob("*.*"))
        includers = [path.name for path in files if "<CLI/" in path.read_text()]
        self.assertEqual(includers, ["command.cc"])

    def test_the_json_library_is_compiled_once(self):
        """Behind io/json.h and io/json_value.h, for the same reason."""
        files = [*sources(), *bindings(), *(ROOT / "cli").rglob("*.*")]
        includers = [path.name for path in files if "<nlohmann/" in path.read_text()]
        self.assertEqual(includers, ["json.cc"])

    def test_eigen_is_compiled_once(self):
        """For eigenvalues. Products are those of linear/, which have threads and instruction sets."""
        files = [*sources(), *bindings(), *(ROOT / "cli").rglob("*.*")]
        includers = [path.name for path in files if "<Eigen/" in path.read_text()]
        self.assertEqual(includers, ["circuits.cc"])

    def test_threads_appear_in_one_place(self):
        for path in sources():
            if path.name != "parallel.cc":
                self.assertNotIn("#include <thread>", path.read_text(), path)
            if path.name not in ("parallel.cc", "turn.cc"):  # both hear of forks
                self.assertNotIn("#include <pthread.h>", path.read_text(), path)

    def test_what_is_locked_knows_of_forks(self):
        """By core/turn.h. The pool has a mutex, which a forked child never sees."""
        for path in [*sources(), *bindings()]:
            if path.name != "parallel.cc":
                self.assertNotRegex(path.read_text(), r"std::(\w+_)?mutex\b", path)

    def test_bindings_let_go_of_the_gil_in_their_own_way(self):
        """By bindings/gil.h: nanobind's classes abort in a thread that Python ends."""
        self.assertGreater(len(bindings()), 30)
        for path in bindings():
            if path.name != "gil.h":
                self.assertNotRegex(path.read_text(), r"\bgil_scoped_", path)


if __name__ == "__main__":
    sys.argv = sys.argv[:1]
    unittest.main()
