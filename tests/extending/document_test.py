"""docs/extending.md and its worked example say the same, and the example fits the sources."""

import pathlib
import re
import shutil
import sys
import tempfile
import unittest

from patching import apply, hunks_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATCH = (ROOT / "tests/extending/stride.patch").read_text()
DOCUMENT = (ROOT / "docs/extending.md").read_text()


def section(title):
    return re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", DOCUMENT, re.MULTILINE | re.DOTALL).group(1)


def named_files(text):
    return set(re.findall(r"`([\w./]+/[\w.]+\.(?:h|cc|c|py|txt|patch|md))`", text))


class Document(unittest.TestCase):
    def test_files_that_recipes_name_are_there(self):
        named = {path for path in named_files(DOCUMENT) if "NAME" not in path}
        self.assertGreater(len(named), 30)
        self.assertEqual([path for path in sorted(named) if not (ROOT / path).exists()], [])

    def test_targets_that_recipes_build_are_there(self):
        built = {name for words in re.findall(r"^\d+\. Build (.*?)[;:]", DOCUMENT, re.MULTILINE | re.DOTALL)
                 for name in re.findall(r"`(\w+)`", words)}
        self.assertGreater(len(built), 4)
        lists = "".join((ROOT / folder / "CMakeLists.txt").read_text() for folder in ("cli", "python", "tests"))
        known = set(re.findall(r"(?:cephalo_tests|add_executable|add_custom_target)\((\w+)", lists))
        self.assertEqual(sorted(built - known), [])

    def test_the_steps_for_a_mask_part_are_those_of_the_patch(self):
        steps = re.findall(r"^\d+\. .*?(?=^\d+\. |^\S(?!\.)|\Z)", section("A mask part"),
                           re.MULTILINE | re.DOTALL)
        self.assertGreater(len(steps), 5)
        self.assertEqual(named_files("".join(steps)), set(hunks_of(PATCH)))

    def test_lines_that_are_shown_are_in_the_patch(self):
        shown = re.findall(r"^ *```diff\n(.*?)^ *```$", DOCUMENT, re.MULTILINE | re.DOTALL)
        self.assertGreater(len(shown), 0)
        for block in shown:
            text = re.sub(r"^   ", "", block, flags=re.MULTILINE)  # it belongs to a step of a list
            self.assertIn(text, PATCH)

    def test_the_patch_fits_the_sources(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder)
            for path in hunks_of(PATCH):
                (copy / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / path, copy / path)
            self.assertEqual(len(apply(PATCH, copy)), len(hunks_of(PATCH)))
            self.assertIn("Mask stride(dim_t n);", (copy / "cephalo/mask/mask.h").read_text())


if __name__ == "__main__":
    sys.argv = sys.argv[:1]
    unittest.main()
