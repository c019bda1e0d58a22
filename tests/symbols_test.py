"""What the linker sees of us: nothing of the kernels stands in for common code, and a shared library
shows what the public headers declare, nothing else.

Kernels are compiled for wide instructions. A weak symbol (an inline function, a template of std::) is kept once in a program, from any object
that has it. Were it taken from a kernel's object, compiled for AVX-512 say, a program would die on
a machine without. So every weak symbol of those objects lies in a namespace of its instruction set.
"""

import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[1]
# cephalo::kernels::N_AVX2::..., hwy::N_AVX3::...; also as an argument of something in there.
OWN = re.compile(r"^(?:\S+ )*?(?:guard variable for )?(?:cephalo::kernels|hwy)::N_\w+::")


def objects(build):
    folder = pathlib.Path(build)
    return sorted(folder.glob("CMakeFiles/cephalo_objects.dir/cephalo/kernels/cpu/*.o"))


def weak_symbols(path):
    out = subprocess.run(["nm", "-C", path], check=True, capture_output=True, text=True).stdout
    for line in out.splitlines():
        kind, _, symbol = line[17:].partition(" ")
        # w and v are wishes for somebody else's, and hold no code.
        if kind in ("W", "V", "u"):
            yield symbol


def public_text():
    """All that cephalo.h, attention.h and c_api.h reach."""
    reached = {"cephalo/cephalo.h", "cephalo/attention.h", "cephalo/c_api.h"}
    unread = list(reached)
    text = ""
    while unread:
        path = ROOT / unread.pop()
        if not path.exists():  # version.h is made by the build
            continue
        text += re.sub(r"(?m)^#include.*$", "", path.read_text())
        new = set(re.findall(r'#include "(cephalo/[^"]+)"', path.read_text())) - reached
        reached |= new
        unread += new
    return text


def exported_symbols(library):
    """Demangled, by what defines them: arguments and template arguments cut off."""
    out = subprocess.run(["nm", "-DC", "--defined-only", library], check=True, capture_output=True,
                         text=True).stdout
    return sorted({line[19:].strip() for line in out.splitlines()})


def name_of(symbol):
    """cephalo::Tensor::empty(cephalo::Shape) -> ["Tensor", "empty"]; [] for what is not ours."""
    plain = re.sub(r"^(?:typeinfo name|typeinfo|vtable|VTT|guard variable|non-virtual thunk) (?:for|to) ",
                   "", symbol)
    plain = re.sub(r"\[abi:\w+\]", "", plain)
    while (cut := re.sub(r"<[^<>]*>", "", plain)) != plain:
        plain = cut
    head = plain.partition("(")[0].split(" ")[-1]
    if head.startswith("cephalo_"):
        return [head]
    return head.split("::")[1:] if head.startswith("cephalo::") else []


def is_declared(name, words):
    """A function by its own name, a member by its class: what a class keeps behind a pointer is named
    in its header, and shown with it."""
    parts = ["operator" if part.startswith("operator") else part for part in name]
    return all(part in words for part in parts[:-1] or parts)


class Symbols(unittest.TestCase):
    build = "build/release"
    shared = "build/release/tests/libcephalo_shared.so"

    def test_a_shared_library_shows_what_public_headers_declare(self):
        words = set(re.findall(r"\w+", public_text()))
        shown = exported_symbols(self.shared)
        for needed in ("cephalo_attend", "typeinfo for cephalo::Error"):
            self.assertIn(needed, shown)
        self.assertTrue(any(s.startswith("cephalo::attend(") for s in shown))
        self.assertEqual([s for s in shown if not is_declared(name_of(s), words)], [])

    def test_a_shared_library_shows_nothing_of_what_is_compiled_in(self):
        wrong = [s for s in exported_symbols(self.shared) if re.match(r"(?:\S+ )*(fmt|nlohmann|hwy|stb\w*)::", s)]
        self.assertEqual(wrong, [])

    def test_weak_symbols_of_kernels_are_of_their_instruction_set(self):
        found = objects(self.build)
        self.assertGreaterEqual(len(found), 4, f"no kernels in {self.build}")
        wrong = {f"{path.name}: {symbol}" for path in found for symbol in weak_symbols(path)
                 if not OWN.match(symbol)}
        self.assertEqual(sorted(wrong), [])

    def test_names_are_found_in_symbols(self):
        for symbol, name in {
                "cephalo::attend(cephalo::TensorView const&)": ["attend"],
                "cephalo::Tensor::empty(cephalo::Shape, int)": ["Tensor", "empty"],
                "typeinfo for cephalo::Error": ["Error"],
                "void cephalo::ops::add<float>(std::vector<int, A<b>>)": ["ops", "add"],
                "cephalo::build[abi:cxx11]()": ["build"],
                "cephalo_attend": ["cephalo_attend"],
                "std::vector<cephalo::Tensor>::push_back(int&&)": []}.items():
            self.assertEqual(name_of(symbol), name)
        self.assertFalse(is_declared(["ops", "add"], {"add"}))

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
    if len(sys.argv) > 1:
        Symbols.shared = sys.argv.pop(1)
    unittest.main()
