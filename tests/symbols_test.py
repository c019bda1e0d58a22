"""Kernels are compiled for wide instructions: nothing of theirs may stand in for common code.

A weak symbol (an inline function, a template of std::) is kept once in a program, from any object
that has it. Were it taken from a kernel's object, compiled for AVX-512 say, a program would die on
a machine without. So every weak symbol of those objects lies in a namespace of its instruction set.
"""

import pathlib
import re
import subprocess
import sys
import unittest

# cephalo::kernels::N_AVX2::..., hwy::N_AVX3::...; also as an argument of something in there.
OWN = re.compile(r"^(?:\S+ )*?(?:guard variable for )?(?:cephalo::kernels|hwy)::N_\w+::")


def objects(build):
    folder = pathlib.Path(build)
    return sorted(folder.glob("CMakeFiles/cephalo.dir/cephalo/kernels/cpu/*.o"))


def weak_symbols(path):
    out = subprocess.run(["nm", "-C", path], check=True, capture_output=True, text=True).stdout
    for line in out.splitlines():
        kind, _, symbol = line[17:].partition(" ")
        # w and v are wishes for somebody else's, and hold no code.
        if kind in ("W", "V", "u"):
            yield symbol


class Symbols(unittest.TestCase):
    build = "build/release"

    def test_weak_symbols_of_kernels_are_of_their_instruction_set(self):
        found = objects(self.build)
        self.assertGreaterEqual(len(found), 4, f"no kernels in {self.build}")
        wrong = {f"{path.name}: {symbol}" for path in found for symbol in weak_symbols(path)
                 if not OWN.match(symbol)}
        self.assertEqual(sorted(wrong), [])

    def test_the_rule_tells_them_apart(self):
        for symbol in ("cephalo::kernels::N_AVX2::Tile<float>::run(int)",
                       "void cephalo::kernels::N_SCALAR::f<float>(float*)",
                       "hwy::N_AVX3::Foo()"):
            self.assertRegex(symbol, OWN)
        for symbol in ("std::vector<int>::push_back(int&&)", "cephalo::Tensor::~Tensor()",
                       "std::max(cephalo::kernels::N_AVX2::V, int)", "hwy::Abort(int)",
                       "void std::swap<cephalo::kernels::N_AVX2::V>(int)"):
            self.assertNotRegex(symbol, OWN)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        Symbols.build = sys.argv.pop(1)
    unittest.main()
