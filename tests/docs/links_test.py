"""Links of the documents lead somewhere, files they name exist, and the README keeps its promises."""

import re
import unittest

from documents import CODE, FENCE, ROOT, markdown_files, notebooks, text_of, without_code

LINK = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
FILE = re.compile(r"`((?:[\w.-]+/)+[\w.-]+\.(?:h|cc|py|md|txt|cmake))`")
# Where a document may name files without the folder that they are in.
SHELVES = ("", "cephalo", "cephalo/attention", "cephalo/kernels")


def anchors(path):
    """Those that GitHub gives the headings of a document."""
    found = set()
    for heading in HEADING.findall(FENCE.sub("", text_of(path))):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        number = 1
        while (slug if number == 1 else f"{slug}-{number - 1}") in found:
            number += 1
        found.add(slug if number == 1 else f"{slug}-{number - 1}")
    return found


def links(path):
    return LINK.findall(CODE.sub("", FENCE.sub("", text_of(path))))


class Links(unittest.TestCase):
    def test_every_link_leads_to_a_file_and_a_heading(self):
        wrong, count = [], 0
        for path in [*markdown_files(), *notebooks()]:
            for link in links(path):
                if re.match(r"[a-z]+:", link):
                    continue
                count += 1
                name, _, anchor = link.partition("#")
                target = (path.parent / name).resolve() if name else path
                if not target.exists():
                    wrong.append(f"{path.relative_to(ROOT)}: {link}: no such file")
                elif anchor and anchor not in anchors(target):
                    wrong.append(f"{path.relative_to(ROOT)}: {link}: no such heading")
        self.assertGreater(count, 50)
        self.assertEqual(wrong, [])

    def test_files_that_documents_name_exist(self):
        wrong = []
        for path in [*markdown_files(), *notebooks()]:
            if path.name == "CHANGELOG.md":  # it speaks of what was
                continue
            for name in FILE.findall(FENCE.sub("", text_of(path))):
                if "NAME" in name or name.startswith("hwy/"):  # to be chosen; another library's
                    continue
                if not any((ROOT / shelf / name).exists() for shelf in SHELVES):
                    wrong.append(f"{path.relative_to(ROOT)}: {name}")
        self.assertEqual(wrong, [])

    def test_every_document_is_reached_from_the_index(self):
        reached = {(ROOT / "docs" / link.partition("#")[0]).resolve()
                   for link in links(ROOT / "docs/README.md")}
        pages = {*ROOT.glob("docs/*.md"), *notebooks()} - {ROOT / "docs/README.md"}
        self.assertEqual(sorted(str(page.relative_to(ROOT)) for page in pages - reached), [])

    def test_pictures_say_what_they_show(self):
        for path in [*markdown_files(), *notebooks()]:
            self.assertNotRegex(without_code(text_of(path)), r"!\[\s*\]\(", path)


class Readme(unittest.TestCase):
    def test_it_can_be_read_in_one_sitting(self):
        self.assertLessEqual(len((ROOT / "README.md").read_text().splitlines()), 250)

    def test_its_measurements_are_those_of_the_results(self):
        readme, results = ((ROOT / name).read_text() for name in ("README.md", "bench/results.md"))
        section = readme.split("\n## Speed\n")[1].split("\n## ")[0]
        rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
        self.assertEqual(len(rows), 5)
        for row in rows:
            self.assertIn(row, results)
        for version in re.findall(r"(?:PyTorch|onnxruntime) [\d.]+\d", section):
            self.assertIn(version, results)


if __name__ == "__main__":
    unittest.main()
