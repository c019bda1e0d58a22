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

    def recorded(self, *words):
        result = self.run_page("--force", *words)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("recorded: ", result.stdout)
        return self.path.read_text(), result.stderr

    def test_a_recorded_page_keeps_the_text_and_not_the_model(self):
        html, said = self.recorded("The cat sat", "--recorded")
        self.assertRegex(said, r"^recording 4 layers of 8 heads, 4 tokens: 0\.[67] MB\n$")
        data = data_of(html)
        self.assertFalse('id="model-parameters"' in html)
        self.assertEqual([token["piece"] for token in data["recorded"]["tokens"]],
                         ["<|endoftext|>", "The", "Ġcat", "Ġsat"])
        self.assertEqual(len(data["recorded"]["heads"]), 32)
        self.assertIsNone(data["recorded"]["full"])
        header = block(html, "recording")[8:]
        self.assertIn(b'"layers.3.q.7"', header)

    def test_look_writes_the_same_page(self):
        html, _ = self.recorded("The cat sat", "--recorded")
        look = self.folder / "look.html"
        subprocess.run([CEPHALO, "look", "The cat sat", "--html", str(look)], check=True, capture_output=True)
        self.assertEqual(look.read_text(), html)

        for message, words in [("omit what chooses among them", ["--layer", "2"]), ("omit --token", ["--token", "cat"])]:
            result = subprocess.run([CEPHALO, "look", "The cat sat", "--html", str(look), *words],
                                    capture_output=True, text=True)
            self.assertEqual(result.returncode, 2)
            self.assertIn(message, result.stderr)

    def test_long_texts_are_recorded_unless_live_is_asked_for(self):
        folder = self.folder / "long"
        subprocess.run([CEPHALO, "convert", "builtin", str(folder), "--context-length", "600"], check=True,
                       capture_output=True)
        words = " cat" * 520
        html, said = self.recorded(words, "--model", str(folder))
        self.assertIn("521 tokens are more than a page that runs", said)
        self.assertIn("(512): recorded instead", said)
        self.assertEqual(data_of(html)["model"]["trained_context_length"], 256)
        result = self.run_page("--force", words, "--model", str(folder), "--live")
        self.assertEqual(result.returncode, 1)
        self.assertIn("use a part of the text, or --recorded", result.stderr)

    def test_above_the_largest_size_chosen_heads_stay(self):
        words = " cat" * 200
        whole, _ = self.recorded(words, "--recorded")
        html, said = self.recorded(words, "--recorded", "--max-size", "2.4MB", "--heads", "L3H1,L0H4")
        self.assertLessEqual(len(html), 2_400_000)
        self.assertGreater(len(whole), 2_400_000)
        self.assertIn("more than --max-size 2.4MB: in full L3H1, L0H4; of the others the map and the 8 strongest", said)
        self.assertEqual(data_of(html)["recorded"]["full"], [25, 4])
        html, said = self.recorded(words, "--recorded", "--max-size", "2.4MB")
        self.assertRegex(said, r"in full L\dH\d, .*L\dH\d; of the others")
        self.assertLessEqual(len(html), 2_400_000)
        result = self.run_page("--force", words, "--recorded", "--max-size", "900KB")
        self.assertEqual(result.returncode, 1)
        self.assertIn("raise --max-size or record a part of the text", result.stderr)

    def test_wrong_usage_is_one_line_and_nothing_is_written(self):
        for status, message, words in [
            (2, "no TEXT given", []),
            (2, "omit --recorded", ["cat", "--live", "--recorded"]),
            (2, "omit --max-size and --heads", ["cat", "--live", "--heads", "L0H0"]),
            (2, "--max-size: a size such as 64MB, not 'big'", ["cat", "--max-size", "big"]),
            (2, "--max-size and --heads: are for a recorded page; pass --recorded", ["cat", "--heads", "L0H0"]),
            (2, "--heads: takes heads such as L3H1,L0H4, not 'L0.mlp'", ["cat", "--recorded", "--heads", "L0.mlp"]),
            (2, "--heads: takes heads such as L3H1,L0H4, not 'foo'", ["cat", "--recorded", "--heads", "foo"]),
            (1, "error: page: there is no layer 9 head 0 to keep; the model has 4 layers of 8 heads",
             ["cat", "--recorded", "--heads", "L9H0"]),
            (1, "MB, and the page may have 1.0 KB; raise --max-size", ["cat", "--recorded", "--max-size", "1KB"]),
            (1, "MB, and the page may have 12 bytes; raise --max-size", ["cat", "--recorded", "--max-size", "12"]),
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
