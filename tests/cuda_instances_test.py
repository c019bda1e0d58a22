"""Kernels of tensor cores are few, and what the compiler says of them is heard."""

import pathlib
import re
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))
import check_cuda  # noqa: E402

MOST = 96
GOOD = """ptxas info    : Compiling entry function 'attend_rows' for 'sm_90'
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 78 registers, used 0 barriers
"""


class Instances(unittest.TestCase):
    def test_they_are_listed_once_and_few(self):
        """Mask parts are data, not instances."""
        text = (ROOT / "cephalo/kernels/cuda/instances.h").read_text()
        looks = re.findall(r"X\((\w+)\)", text)
        types = re.findall(r"X\((\w+), (\d+), LOOKS_AT\)", text)
        for listed in (looks, types):
            self.assertEqual(len(listed), len(set(listed)))
        self.assertIn(f"foreach(looks_at {' '.join(looks)})", (ROOT / "cmake/cuda.cmake").read_text())
        wide = [re.findall(pattern, text) for pattern in
                (r"X\((\w+), (\d+), (\d+), (\d)\)", r"X\((\w+), (\d+), (\d)\)")]
        for listed in wide:
            self.assertEqual(len(listed), len(set(listed)))
            self.assertGreater(len(listed), 0)
        kernels = 2 * len(looks) * len(types)  # forward, and backward by turns
        kernels += len(looks) * sum(width == "64" for _, width in types)  # backward in any order
        kernels += len(types) + sum(map(len, wide))  # documents, forward, in alibi's kernels
        self.assertGreaterEqual(kernels, 36)
        self.assertLessEqual(kernels, MOST)


class Launches(unittest.TestCase):
    def test_nothing_overtakes_the_kernels_that_wait_in_a_line(self):
        """launch() puts a kernel behind them; whatever else goes into the stream comes after launch_waiting()."""
        for folder in ("kernels", "attention"):
            for path in sorted((ROOT / "cephalo" / folder / "cuda").iterdir()):
                lines = path.read_text().splitlines()
                for n, line in enumerate(lines):
                    self.assertNotIn("<<<", line, path.name)
                    if re.search(r"cudaMem(cpy|set)\w*\(", line):
                        self.assertIn("launch_waiting()", lines[n - 1], path.name)


class WhatTheCompilerSays(unittest.TestCase):
    def found(self, log):
        with tempfile.TemporaryDirectory() as name:
            build = pathlib.Path(name)
            (build / "CMakeCache.txt").write_text("CEPHALO_NVCC:FILEPATH=/nowhere/nvcc\n")
            (build / "cuda").mkdir()
            if log is not None:
                (build / "cuda/simple.cu.o.ptxas").write_text(log)
            return [problem for problem in check_cuda.problems(build) if "cuobjdump" not in problem]

    def test_nothing_is_found_where_nothing_is_wrong(self):
        self.assertEqual(self.found(GOOD), [])

    def test_serialised_products_spills_and_no_kernels_are_found(self):
        self.assertIn("C7510", self.found(GOOD + "ptxas info : (C7510) Potential Performance Loss\n")[0])
        spilled = GOOD.replace("0 bytes stack frame", "80 bytes stack frame")
        self.assertEqual(self.found(spilled), ["simple.cu: 80 bytes of registers are on the stack"])
        self.assertIn("no kernels", self.found(None)[0])


if __name__ == "__main__":
    unittest.main()
