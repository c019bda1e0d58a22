"""English as people write it: phrases translated from another language stay out of documents and
docstrings. messages_test.py looks at what appears on screen."""

import ast
import bisect
import itertools
import re
import sys
import unittest

from documents import ROOT, markdown_files, notebooks, text_of, without_code

sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tools/site")]
from cpp_headers import public_headers  # noqa: E402
from phrases import HABITS, PATTERNS, bad_habits  # noqa: E402

LITERAL = re.compile(r'R"\((.*?)\)"|"((?:[^"\\\n]|\\.)+)"', re.DOTALL)
# A list of old names, and a notebook of measurements.
LEFT_OUT = {"CHANGELOG.md", "results.md"}


def found_in(text, where):
    """Lines of text with a bad habit; a phrase may be broken over two lines."""
    words = list(re.finditer(r"\S+", text))
    flat = " ".join(word.group() for word in words)
    begins = [0, *itertools.accumulate(len(word.group()) + 1 for word in words)]
    hits = []
    for match, instead in bad_habits(flat):
        word = words[bisect.bisect(begins, match.start()) - 1]
        line = text.count("\n", 0, word.start()) + 1
        hits.append(f'{where}:{line}: "{match.group()}"; rather: {instead}')
    return hits


def docstrings(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = [n for n in ast.walk(tree)
             if isinstance(n, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(n)]
    return "\n".join(ast.get_docstring(n) for n in nodes)


def texts(path):
    """The texts in a C++ source; neighbours are one text."""
    source = re.sub(r"//.*", "", path.read_text(encoding="utf-8"))
    text = re.sub(r'"\s*\n\s*"', "", source)
    return [m.group(1) or m.group(2) for m in LITERAL.finditer(text)]


class English(unittest.TestCase):
    def test_each_habit_is_recognised_and_its_cure_is_not(self):
        for (_, bad, good), (pattern, _) in zip(HABITS, PATTERNS):
            self.assertRegex(bad, pattern)
            self.assertNotRegex(good, pattern)

    def test_phrases_broken_over_lines_are_found(self):
        self.assertEqual(len(found_in("the ids of a text hang\n   on the machine", "here")), 1)

    def test_code_is_not_prose(self):
        text = "say\n\n```cpp\nis no\n```\n\n    hangs on\n\nand `is told` too\n"
        self.assertEqual(found_in(without_code(text), "here"), [])

    def test_the_documents_are_free_of_them(self):
        hits = []
        for path in [*markdown_files(), *notebooks()]:
            if path.name not in LEFT_OUT:
                hits += found_in(without_code(text_of(path)), path.relative_to(ROOT))
        self.assertFalse(hits, "\n" + "\n".join(hits))

    def test_comments_of_the_public_headers_are_free_of_them(self):
        """The documentation site shows them."""
        hits = []
        for header in public_headers(ROOT):
            lines = (ROOT / header).read_text(encoding="utf-8").splitlines()
            hits += found_in("\n".join(line.partition("//")[2] for line in lines), header)
        self.assertFalse(hits, "\n" + "\n".join(hits))

    def test_docstrings_of_the_package_are_free_of_them(self):
        hits = []
        for path in sorted((ROOT / "python/cephalo").glob("*.py")):
            hits += found_in(docstrings(path), path.relative_to(ROOT))
        self.assertFalse(hits, "\n" + "\n".join(hits))

    def test_docstrings_of_the_bindings_are_free_of_them(self):
        hits = []
        for path in sorted((ROOT / "python/bindings").rglob("*.cc")):
            for text in texts(path):
                hits += found_in(text, path.relative_to(ROOT))
        self.assertFalse(hits, "\n" + "\n".join(hits))


if __name__ == "__main__":
    unittest.main()
