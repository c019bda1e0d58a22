"""What appears on screen: the library's messages name options, never the program's flags, and texts avoid
the turns of phrase that read as translated."""

import ast
import pathlib
import re
import subprocess
import sys
import unittest

from phrases import bad_habits

CEPHALO = sys.argv[1]
ROOT = pathlib.Path(__file__).resolve().parents[1]
TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|\'(?:[^\'\\\n]|\\.)*\'|"((?:[^"\\\n]|\\.)*)"', re.S)


def literals(path):
    """The strings of a C++ source, neighbours joined; of a Python source but its docstrings."""
    text = path.read_text()
    if path.suffix == ".py":
        tree = ast.parse(text)
        docstrings = {id(node.body[0].value) for node in ast.walk(tree)
                      if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and node.body
                      and isinstance(node.body[0], ast.Expr)}
        return [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)
                and isinstance(node.value, str) and id(node) not in docstrings]
    found, end = [], -1
    for match in TOKEN.finditer(text):
        if match[2] is None:
            continue
        if found and text[end:match.start()].strip() == "" and end >= 0:
            found[-1] += match[2]
        else:
            found.append(match[2])
        end = match.end()
    return found


def sources(*folders, suffixes=(".cc", ".h")):
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*"))
            if path.suffix in suffixes]


def helps(*verb):
    """(verb, its help), of the verbs within it too."""
    text = subprocess.run([CEPHALO, *verb, "--help"], capture_output=True, text=True, check=True).stdout
    yield " ".join(verb), text
    listed = re.search(r"^Subcommands:\n((?:  .*\n)+)", text, re.MULTILINE)
    for word in re.findall(r"^  (\w+)", listed[1], re.MULTILINE) if listed else ():
        yield from helps(*verb, word)


class Messages(unittest.TestCase):
    maxDiff = None

    def test_the_library_names_no_flags(self):
        files = sources("cephalo")
        self.assertGreater(len(files), 200)
        self.assertEqual([f"{path.name}: {text}" for path in files for text in literals(path)
                          if re.search(r"--[a-z]", text)], [])

    def avoided(self, where, text):
        for match, instead in bad_habits(text):
            around = text[max(0, match.start() - 30):match.end() + 30]
            yield f"{where}: ...{around}...; rather: {instead}"

    def test_messages_are_plain(self):
        files = [*sources("cephalo", "cli"), *sources("python/cephalo", suffixes=(".py",))]
        self.assertEqual([wrong for path in files for text in literals(path)
                          for wrong in self.avoided(path.name, text)], [])

    def test_help_is_plain(self):
        seen = dict(helps())
        self.assertGreater(len(seen), 13)
        self.assertIn("tokenize train", seen)
        for verb, text in seen.items():
            self.assertEqual(list(self.avoided(f"{verb} --help", text)), [])
            self.assertIn("Usage: cephalo", text)


if __name__ == "__main__":
    sys.argv = sys.argv[:1]
    unittest.main()
