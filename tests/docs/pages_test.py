"""The tools behind the documentation site: comments, signatures and links become pages."""

import ast
import pathlib
import sys
import tempfile
import unittest

from documents import ROOT

sys.path.insert(0, str(ROOT / "tools/site"))
import check_links  # noqa: E402
import cpp_headers  # noqa: E402
import prose  # noqa: E402
import python_pages  # noqa: E402

HEADER = """#pragma once

#include <vector>

namespace cephalo {

class Forward;

// What an engine is.
struct Engine {
  int number;  // from 1

 private:
  int secret;
};

// x: [tokens, d]
int run(
    const Engine& engine);
int run_all();
int stop();  // at once

int silent();

}  // namespace cephalo
"""


class Headers(unittest.TestCase):
    def setUp(self):
        self.groups = cpp_headers.groups_of(HEADER)

    def test_declarations_are_grouped_under_their_comments(self):
        self.assertEqual([group.comment for group in self.groups],
                         [["What an engine is."], ["x: [tokens, d]"], []])
        self.assertEqual([line for _, line in self.groups[1].code],
                         ["int run(", "    const Engine& engine);", "int run_all();",
                          "int stop();  // at once"])

    def test_what_is_private_is_not_shown(self):
        shown = "\n".join(line for group in self.groups for _, line in group.code)
        self.assertIn("int number;", shown)
        self.assertNotIn("secret", shown)
        self.assertNotIn("Forward", shown)
        self.assertIn("};", shown)

    def test_names_without_a_comment_are_found(self):
        lines = HEADER.splitlines()
        for group in self.groups:
            inside = {number for number, _ in group.code}
            group.names = [cpp_headers.Name(name, "function", 1 + lines.index(line))
                           for name, line in (("run", "int run("), ("stop", "int stop();  // at once"),
                                              ("silent", "int silent();"))
                           if 1 + lines.index(line) in inside]
        missing = cpp_headers.undocumented({"a.h": self.groups})
        self.assertEqual([line.rpartition(" ")[2] for line in missing], ["silent"])

    def test_public_headers_are_those_that_are_installed(self):
        found = cpp_headers.public_headers(ROOT)
        self.assertIn("cephalo/attention/attend.h", found)
        self.assertNotIn("cephalo/kernels/kernels.h", found)


class Prose(unittest.TestCase):
    def test_arguments_keep_their_lines_and_wrapped_lines_are_joined(self):
        long = "Queries against keys, " + "word " * 13 + "and"
        text = prose.markdown([long, "more.", "q: [batch, tokens]", "-> y", "", "Next."])
        self.assertEqual(text.split("\n\n")[1], "Next.")
        self.assertEqual(text.split("\n\n")[0].split("  \n"),
                         [f"{long} more.", "q: `[batch, tokens]`", "-&gt; y"])

    def test_types_become_links_and_markup_stays_text(self):
        text = prose.markdown(["A Mask of <T> is *kept* in a_b."], {"Mask": "mask.md#mask"})
        self.assertEqual(text, r"A [Mask](mask.md#mask) of &lt;T&gt; is \*kept\* in a\_b.")


class Signatures(unittest.TestCase):
    def test_annotations_that_say_nothing_are_left_out(self):
        node = ast.parse("def f(self, x: Any, *, n: int | None=None, k: Any | None=None) -> Any: ...").body[0]
        self.assertEqual(python_pages.signature(node), "f(x, *, n: int | None = None, k=None)")

    def test_long_ones_are_broken(self):
        arguments = ", ".join(f"argument_{i}: int=0" for i in range(9))
        lines = python_pages.signature(ast.parse(f"def f({arguments}): ...").body[0]).splitlines()
        self.assertEqual((lines[0], lines[-1]), ("f(", ")"))
        self.assertLessEqual(max(map(len, lines)), python_pages.WIDTH)

    def test_every_public_name_has_a_place(self):
        placed = python_pages.sections(ROOT / "python/cephalo")
        names = [name for section in placed.values() for name in section]
        self.assertIn("attend", placed["attention"])
        self.assertEqual(sorted(names), sorted(python_pages.public_names(ROOT / "python/cephalo")))


class Links(unittest.TestCase):
    def test_what_leads_nowhere_or_is_loaded_from_elsewhere_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            base = pathlib.Path(folder)
            (base / "a.html").write_text('<h1 id="top"></h1><a href="b.html#x">good</a><a href="#gone">bad</a>'
                                         '<a href="c.html">bad</a><a href="https://elsewhere/">a link may</a>'
                                         '<script src="https://elsewhere/x.js"></script>')
            (base / "b.html").write_text('<p id="x"></p><a href="a.html#top">good</a>')
            found = check_links.broken_links(base)
        self.assertEqual([line.partition(": ")[2] for line in found],
                         ["#gone: no such heading", "c.html: no such file",
                          "https://elsewhere/x.js: is loaded from elsewhere"])


if __name__ == "__main__":
    unittest.main()
