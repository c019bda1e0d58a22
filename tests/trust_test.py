"""docs/trust.md lists what misuse and faults get, by the ids that tests cite: the same ids in both."""

import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[1]
# In the name of a test ("A4_dropout", "C1_C2_wrong_usage"), or as a key of a table of bad files.
NAMED = re.compile(r"(?:TEST\w*\(\w+,\s*|def test_)((?:[A-Z]\d{1,2}_)+)")
KEYED = re.compile(r'^ +"([A-Z]\d{1,2})": \[', re.MULTILINE)
# In the comment at the top of a file: "rows R3, R5 and R8", "(A1 to A10)".
CITED = re.compile(r"\b([ACKNPRTW]\d{1,2})\b(?: to ([ACKNPRTW]\d{1,2})\b)?")


def tested_ids():
    ids = set()
    for path in (ROOT / "tests").rglob("*"):
        if path.suffix in (".cc", ".py") and path != pathlib.Path(__file__).resolve():
            text = path.read_text()
            ids.update(id for names in NAMED.findall(text) for id in names.split("_") if id)
            ids.update(KEYED.findall(text))
    return ids


def cited_ids(text):
    ids = set()
    for first, last in CITED.findall(text):
        last = last or first
        ids.update(f"{first[0]}{n}" for n in range(int(first[1:]), int(last[1:]) + 1))
    return ids


class Trust(unittest.TestCase):
    def setUp(self):
        rows = re.findall(r"(?m)^\| ([A-Z]\d{1,2}) \| ([^|]+) \| ([^|]+) \|$",
                          (ROOT / "docs/trust.md").read_text())
        self.listed = [row[0] for row in rows]
        self.assertGreater(len(rows), 50)

    def test_every_id_is_listed_once(self):
        self.assertEqual(len(self.listed), len(set(self.listed)))

    def test_every_row_has_a_test_and_every_test_a_row(self):
        self.assertEqual(sorted(self.listed), sorted(tested_ids()))

    def test_comments_cite_rows_that_exist(self):
        for path in (ROOT / "tests").rglob("*_test.*"):
            head = path.read_text()[:200]
            if re.search(r"\b(rows?|list of (misuse|faults|bad))\b", head, re.IGNORECASE):
                self.assertLessEqual(cited_ids(head), set(self.listed), path)


if __name__ == "__main__":
    sys.argv = sys.argv[:1]
    unittest.main()
