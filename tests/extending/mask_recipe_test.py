"""docs/extending.md, "A mask part", followed to the letter: stride.patch goes onto a copy of the sources,
and the tests that every mask passes are built from it and run.

Whatever the patch touches, or includes what it touches, is compiled again, with the commands of the build
folder; all other objects are those of the build. An object of the build that the patch has made stale is
never linked.

    mask_recipe_test.py BUILD
"""

import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

from patching import apply

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATCH = (ROOT / "tests/extending/stride.patch").read_text()
FOLDERS = ("cephalo", "docs", "python", "tests")  # of the sources
PROGRAM = ("tests/mask/mask_test.cc", "tests/mask/mask_text_test.cc",
           "tests/attention/conformance_test.cc", "tests/attention/conformance_backward_test.cc",
           "tests/attention/place_test.cc")
# The tests among them that try every part alone and with every other.
FILTER = ":".join(("MaskTest.*", "MaskTextTest.*", "*ConformanceTest.error_against*",
                   "*ConformanceTest.changing_a_hidden*",
                   "*ConformanceBackwardTest.every_mask_gives*", "*PlaceTest.rectangles_of_whole_rows*",
                   "PlaceWeightsTest.rectangles_have*"))


class Build:
    """What a build folder knows: how each object was made, from what, and what it defines."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder).resolve()
        commands = json.loads((self.folder / "compile_commands.json").read_text())
        self.commands = {re.search(r" -o (\S+)", entry["command"]).group(1): entry for entry in commands}
        self.headers = self.read_headers()

    def read_headers(self):
        listing = subprocess.run(["ninja", "-t", "deps"], cwd=self.folder, capture_output=True,
                                 text=True, check=True).stdout
        headers = {}
        for block in listing.split("\n\n"):
            first, *lines = block.splitlines() or [""]
            paths = (os.path.join(self.folder, line.strip()) for line in lines)
            headers[first.partition(": #deps")[0]] = set(map(os.path.normpath, paths))
        return headers

    def source_of(self, output):
        return str(pathlib.Path(self.commands[output]["file"]))

    def made_from(self, output, paths):
        """Is one of the paths the source of an object, or included by it?"""
        wanted = {str(ROOT / path) for path in paths}
        return self.source_of(output) in wanted or not wanted.isdisjoint(self.headers.get(output, ()))

    def objects(self, target):
        return [output for output in self.commands if f"CMakeFiles/{target}.dir/" in output]

    def object_of(self, source):
        """Of those that a source was compiled to: it may be in several programs."""
        return next(output for output in self.commands if self.source_of(output) == str(ROOT / source))

    def symbols(self, output):
        """(defined, undefined)"""
        listing = subprocess.run(["nm", "-P", self.folder / output], capture_output=True, text=True,
                                 check=True).stdout
        defined, undefined = set(), set()
        for name, kind, *_ in map(str.split, listing.splitlines()):
            if kind in "Uwv":
                undefined.add(name)
            elif kind.isupper() or kind == "u":
                defined.add(name)
        return defined, undefined

    def needed_by(self, program, libraries):
        """The objects of libraries that a linker would take for the program's."""
        tables = {output: self.symbols(output) for output in [*program, *libraries]}
        home = {}
        for output in libraries:
            for name in tables[output][0]:
                home.setdefault(name, output)
        needed, open_ones = set(), list(program)
        while open_ones:
            for name in tables[open_ones.pop()][1]:
                if name in home and home[name] not in needed:
                    needed.add(home[name])
                    open_ones.append(home[name])
        return sorted(needed)


class Recipe(unittest.TestCase):
    build = "build/release"

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.copy = pathlib.Path(folder.name)
        for name in FOLDERS:
            shutil.copytree(ROOT / name, self.copy / name)
        self.touched = apply(PATCH, self.copy)
        self.known = Build(self.build)

    def in_copy(self, text):
        """The same words about the copy. What it lacks stays: the build's folder, nanobind's headers."""
        folders = "|".join(map(re.escape, FOLDERS))
        return re.sub(rf"{re.escape(str(ROOT))}(?=(?:/(?:{folders})(?:/|\s|$))|\s|$)", str(self.copy), text)

    def compile(self, output):
        made = self.copy / "objects" / output
        made.parent.mkdir(parents=True, exist_ok=True)
        words = shlex.split(self.in_copy(self.known.commands[output]["command"]))
        words[words.index("-o") + 1] = str(made)
        for flag in ("-MD", "-MT", "-MF"):  # Ninja's, for a file beside the object of the build
            if flag in words:
                at = words.index(flag)
                del words[at:at + (1 if flag == "-MD" else 2)]
        done = subprocess.run(words, cwd=self.known.folder, capture_output=True, text=True)
        return made, done.stderr if done.returncode else ""

    def compile_all(self, outputs):
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            results = list(pool.map(self.compile, outputs))
        self.assertEqual("".join(error for _, error in results), "")
        return [str(made) for made, _ in results]

    def test_a_part_added_as_the_document_says_passes_the_tests_of_all_parts(self):
        known = self.known
        program = [known.object_of(source) for source in PROGRAM]
        libraries = known.objects("cephalo_objects") + known.objects("cephalo_test_support")
        needed = known.needed_by(program, libraries)
        stale = [output for output in needed if known.made_from(output, self.touched)]
        # And what is not in the program is at least compiled: the C interface, the bindings.
        others = [output for output in known.commands
                  if known.source_of(output) in {str(ROOT / path) for path in self.touched}
                  and output not in stale]
        self.assertGreater(len(needed), len(stale))
        self.assertGreater(len(stale), 10)
        made = self.compile_all([*program, *stale, *others])[:len(program) + len(stale)]
        fresh = [str(known.folder / output) for output in needed if output not in stale]
        tests = self.copy / "tests_of_masks"
        compiler = known.commands[program[0]]["command"].split(" -")[0]
        link = subprocess.run([*shlex.split(compiler), *made, *fresh, "-lgtest", "-lgtest_main",
                               "-pthread", "-o", tests], capture_output=True, text=True)
        self.assertEqual(link.returncode, 0, link.stderr)
        run = subprocess.run([tests, f"--gtest_filter={FILTER}"], capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stdout[-5000:])
        print(f"{len(made)} objects compiled, {len(fresh)} of the build;", run.stdout.splitlines()[-1])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        Recipe.build = sys.argv.pop(1)
    unittest.main()
