"""cephalo page: one HTML file from a text, a file or stdin."""

import base64
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

CEPHALO = sys.argv.pop(1)
ROOT = pathlib.Path(__file__).resolve().parents[2]


def data_of(html):
    return json.loads(re.search(r'id="page-data">(.*?)</script>', html).group(1))


def block(html, name):
    return base64.b64decode(re.search(rf'id="{name}">([^<]*)</script>', html).group(1), validate=True)


class Page(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.path = self.folder / "page.html"

    def run_page(self, *words, stdin=None):
        return subprocess.run([CEPHALO, "page", "-o", str(self.path), *words], capture_output=True,
                              text=True, input=stdin, timeout=60)

    def write(self, *words, stdin=None):
        result = self.run_page(*words, stdin=stdin)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn(f"{self.path}: ", result.stdout)
        return self.path.read_text()

    def test_a_text_a_file_and_stdin_make_the_same_page(self):
        html = self.write("The cat sat")
        self.assertEqual(data_of(html)["text"], "The cat sat")
        text = self.folder / "text.txt"
        text.write_text("The cat sat\n")
        self.assertEqual(self.write("--file", str(text), "--force"), html)
        self.assertEqual(self.write("-", "--force", stdin="The cat sat\n"), html)

    def test_the_model_is_inside_byte_for_byte(self):
        html = self.write("The cat sat")
        model = ROOT / "models/cephalo-small"
        self.assertEqual(block(html, "model-parameters"), (model / "model.safetensors").read_bytes())
        self.assertEqual(block(html, "model-config"), (model / "config.json").read_bytes())
        self.assertEqual(json.loads(block(html, "model-vocab")), json.loads((model / "vocab.json").read_text()))
        self.assertEqual(data_of(html)["model"]["name"], "cephalo-small")
        self.assertEqual(len(data_of(html)["probe"]["scores"]), 32 * 6)

    def test_a_folder_of_your_own(self):
        folder = self.folder / "mine"
        shutil.copytree(ROOT / "models/cephalo-small", folder)
        html = self.write("The cat sat", "--model", str(folder))
        self.assertEqual(data_of(html)["model"]["name"], str(folder))
        self.assertEqual(block(html, "model-parameters"), (folder / "model.safetensors").read_bytes())

    def test_wrong_usage_is_one_line_and_nothing_is_written(self):
        for status, message, words in [
            (2, "no TEXT given", []),
            (1, "303 tokens are more than cephalo-small reads at once", ["cat " * 300]),
        ]:
            result = self.run_page(*words)
            self.assertEqual((result.returncode, result.stdout), (status, ""), words)
            self.assertIn(message, result.stderr)
            self.assertFalse(self.path.exists())
        result = subprocess.run([CEPHALO, "page", "cat", "-o", str(self.folder / "page.pdf")],
                                capture_output=True, text=True)
        self.assertEqual(result.returncode, 2)
        self.assertIn("does not end in .html", result.stderr)

    def test_what_is_there_is_kept_without_force(self):
        self.path.write_text("mine")
        result = self.run_page("The cat sat")
        self.assertEqual(result.returncode, 1)
        self.assertIn("--force", result.stderr)
        self.assertEqual(self.path.read_text(), "mine")


if __name__ == "__main__":
    unittest.main()
