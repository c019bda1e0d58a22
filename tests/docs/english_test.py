"""English as people write it: phrases translated from another language stay out of documents and
docstrings. messages_test.py looks at what appears on screen."""

import ast
import bisect
import itertools
import re
import sys
import unittest

from documents import ROOT, markdown_files, notebooks, text_of, without_code

sys.path.insert(0, str(ROOT / "tools/site"))
from cpp_headers import public_headers  # noqa: E402

# What is wrong, a sentence that has it, and how to say it instead.
HABITS = [
    (r"\bhangs? on\b", "The ids hang on the machine.", "The ids depend on the machine."),
    (r"\b(?:is|are) told\b", "A full disk is told at once.", "A full disk is reported at once."),
    (r"\bof yours\b", "It calls a function of yours.", "It calls your function."),
    (r"(?<!there )\b(?:is|are|was|were) no\b(?! (?:longer|more|less|better|worse|fewer|match))",
     "A mask is no tensor.", "A mask is not a tensor; there is no tensor."),
    (r"\bbeside (?:what|each other|one another|tensors|the (?:bound|others|tolerance))\b",
     "Errors beside what is allowed.", "Errors relative to what is allowed."),
    (r"(?:^|[.,;:] |\band )who (?:links?|calls?|uses?|wants?|reads?)\b", "Who links it needs nothing.",
     "Programs that link it need nothing."),
    (r"\b(?:go|goes|went|going) on (?:with|from|where|after|as)\b", "It goes on with step 4.",
     "It continues with step 4."),
    (r"\bstands? (?:there|at|under|before|for itself)\b", "What stands there is compiled.",
     "What is there is compiled."),
    (r"\bwhere (?:it|they) lies?\b", "Arrays are read where they lie.", "Arrays are read in place."),
    (r"\b(?:all|everything) alike\b", "It looks at all alike.", "It looks at everything equally."),
    (r"\b(?:can|cannot|could|may) be had\b", "Weights can be had afterwards.",
     "Weights are available afterwards."),
    (r"\banew\b", "Weights are computed anew.", "Weights are recomputed."),
    (r"\bin silence\b", "It never falls back in silence.", "It never falls back silently."),
    (r"\b(?:allows?|permits?|enables?) to\b", "It allows to see heads.", "It lets you see heads."),
    (r"\bsays? (?:it|them) (?:all )?so\b", "The plan says it so.", "The plan says so."),
    (r"\bwas put before\b", "A token was put before the text.", "A token was prepended."),
    (r"\bbegins one\b", "It was put there: it begins one.", "It starts every text."),
    (r"\bsay what to do\b", "say what to do, for example: look", "no command given; try: look"),
    (r"\bnothing was saved there\b", "nothing was saved there yet: begins",
     "no checkpoint yet; starting from the beginning"),
    (r"\bhas .{1,40} to give\b", "this machine has 2 GiB to give", "only 2 GiB is available"),
    (r"\bmade so\b", "The model was made so.", "The model was trained this way."),
    (r"\bof no known\b", "Keys of no known name.", "Unknown keys."),
    (r"\bso many (?:of|tokens|sequences)\b", "At most so many of them.", "At most this many."),
    (r"\binformations\b|\badvices\b|\bsoftwares\b", "It prints informations.", "It prints information."),
]
PATTERNS = [(re.compile(wrong, re.IGNORECASE), instead) for wrong, _, instead in HABITS]
LITERAL = re.compile(r'R"\((.*?)\)"|"((?:[^"\\\n]|\\.)+)"', re.DOTALL)
# A list of old names, and a notebook of measurements.
LEFT_OUT = {"CHANGELOG.md", "results.md"}


def found_in(text, where):
    """Lines of text with a bad habit; a phrase may be broken over two lines."""
    words = list(re.finditer(r"\S+", text))
    flat = " ".join(word.group() for word in words)
    begins = [0, *itertools.accumulate(len(word.group()) + 1 for word in words)]
    hits = []
    for pattern, instead in PATTERNS:
        for match in pattern.finditer(flat):
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
