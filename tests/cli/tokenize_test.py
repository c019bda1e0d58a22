"""tokenize: ids and pieces, back to bytes, vocabularies learned, and what is refused."""

import json
import os
import pathlib
import pty
import subprocess
import sys
import tempfile
import unittest

CEPHALO = sys.argv[1]
ROOT = pathlib.Path(__file__).resolve().parents[2]
VOCABULARY = ROOT / "tests/golden/files/tokenizer"
GOLDEN = json.loads((ROOT / "tests/golden/tokenizer.json").read_text())


def tokenize(*arguments, **more):
    return subprocess.run([CEPHALO, "tokenize", *map(os.fsencode, map(str, arguments))],
                          capture_output=True, **more)


class InFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def ok(self, *arguments):
        result = tokenize(*arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stderr, b"")  # nobody looks: no progress
        return result.stdout

    def report(self, *arguments):
        return json.loads(self.ok("--vocab", VOCABULARY, "--json", *arguments))

    def refuses(self, status, message, *arguments):
        before = sorted(self.folder.rglob("*"))
        result = tokenize(*arguments)
        self.assertEqual(result.returncode, status, result.stderr)
        self.assertEqual(result.stdout, b"")
        self.assertEqual(result.stderr.decode(), f"error: {message}\n")
        self.assertEqual(sorted(self.folder.rglob("*")), before)


class Tokenize(InFolder):
    def test_a_line_for_each_token(self):
        text = self.ok("The cat\n\u00e4\x07\u4e16", "--vocab", VOCABULARY).decode()
        self.assertEqual(text, "7 tokens of 14 bytes, vocabulary of 420\n"
                               '0  292  "The"\n1  276  " cat"\n2  198  "\\n"\n3  127  "\\xC3"\n'
                               '4   97  "\\xA4"\n5  195  "\\x07"\n6  305  "\u4e16"\n')

    def test_json_has_ids_and_pieces(self):
        self.assertEqual(self.report("The cat"),
                         {"vocab_size": 420, "tokens": 2, "bytes": 7, "ids": [292, 276],
                          "pieces": ["The", "\u0120cat"]})
        self.assertEqual(self.report("")["ids"], [])

    def test_a_file_of_any_bytes_goes_there_and_back(self):
        path = self.folder / "text"
        for case in GOLDEN["cases"][::9]:
            content = bytes.fromhex(case["bytes"])
            path.write_bytes(content)
            found = self.report("--file", path)
            self.assertEqual(found["ids"], case["ids"])
            self.assertEqual(found["bytes"], len(content))
            (self.folder / "ids").write_text(json.dumps(found["ids"]))
            back = self.ok("--decode", "--file", self.folder / "ids", "--vocab", VOCABULARY)
            self.assertEqual(back, content)

    def test_special_tokens_count_when_they_are_allowed(self):
        text = "a<|endoftext|>b"
        self.assertGreater(self.report(text)["tokens"], 3)
        self.assertEqual(self.report(text, "--special")["ids"][1], 419)

    def test_the_word_train_can_be_a_text(self):
        self.assertEqual(self.ok("--vocab", VOCABULARY, "--json", "--", "train")[:15], b'{"vocab_size":4')

    def test_control_characters_do_not_reach_a_terminal(self):
        controller, terminal = pty.openpty()
        ids = self.report("a\x1b[2J\tb\nc")["ids"]
        words = [CEPHALO, "tokenize", "--decode", " ".join(map(str, ids)), "--vocab", VOCABULARY]
        subprocess.run(words, stdout=terminal, check=True)
        os.close(terminal)
        self.assertEqual(os.read(controller, 100), b"a?[2J\tb\r\nc\r\n")
        os.close(controller)

    def test_wrong_usage(self):
        see = "; see cephalo tokenize --help"
        self.refuses(2, f"no TEXT given; pass one, or --file FILE{see}")
        self.refuses(2, "--file: TEXT is also given; use only one of them", "a", "--file", "b")
        self.refuses(2, f"unknown flag '--vocap' (did you mean --vocab?){see}", "a", "--vocap", "b")
        self.refuses(2, "--decode: '1x' is not a token id (id 2 of the list)", "--decode",
                     "[0, 1, 1x]", "--vocab", VOCABULARY)

    def test_A14_ids_outside_of_the_vocabulary(self):
        for ids, wrong, position in (("1 420", 420, 1), ("-1", -1, 0), ("2147483647", 2147483647, 0)):
            self.refuses(1, f"decode: id {wrong} at position {position} is outside the vocabulary of 420",
                         "--vocab", VOCABULARY, "--decode", f" {ids}")
        self.refuses(2, "--decode: '2147483648' is not a token id (id 0 of the list)", "--vocab",
                     VOCABULARY, "--decode", "2147483648")

    def test_files_that_are_not_there(self):
        missing = self.folder / "missing"
        self.refuses(1, f"{missing}: No such file or directory", "--file", missing, "--vocab",
                     VOCABULARY)
        self.refuses(1, f"{missing}: has no vocab.json with merges.txt, nor encoder.json with "
                        "vocab.bpe: no vocabulary", "a", "--vocab", missing)
        self.refuses(1, f"{self.folder}: is a directory, not a file", "--file", self.folder,
                     "--vocab", VOCABULARY)


class Train(InFolder):
    def setUp(self):
        super().setUp()
        self.corpus = self.folder / "corpus.txt"
        self.corpus.write_text(GOLDEN["text"])
        self.output = self.folder / "vocabulary"

    def test_the_vocabulary_is_that_of_the_tokenizers_package(self):
        text = self.ok("train", self.corpus, "-o", self.output, "--vocab-size",
                       GOLDEN["vocab_size"], "--min-count", GOLDEN["min_count"]).decode()
        self.assertRegex(text, rf"^{self.output}: 420 tokens, 163 merges; the corpus is \d+ tokens, "
                               r"\d\.\d\d bytes each\n$")
        for name in ("vocab.json", "merges.txt"):
            self.assertEqual((self.output / name).read_text(), (VOCABULARY / name).read_text())

    def test_a_corpus_that_is_too_small_gives_fewer_tokens(self):
        text = self.ok("train", self.corpus, "-o", self.output).decode().splitlines()
        self.assertEqual(text[1], "fewer than 4096: no other pair occurs 2 times")

    def test_special_tokens_come_last(self):
        self.ok("train", self.corpus, self.corpus, "-o", self.output, "--vocab-size", "300",
                "--special-token", "<a>", "--special-token", "<b>")
        vocabulary = json.loads((self.output / "vocab.json").read_text())
        self.assertEqual([vocabulary["<a>"], vocabulary["<b>"]], [298, 299])

    def test_what_is_there_is_kept_unless_forced(self):
        words = ("train", self.corpus, "-o", self.output, "--vocab-size", "300")
        self.ok(*words)
        self.refuses(1, f"{self.output}/vocab.json: already exists; --force overwrites it", *words)
        self.ok(*words, "--force")
        self.refuses(2, f"{self.output}/vocab.json: is also the input; choose another output", "train",
                     self.output / "vocab.json", "-o", self.output, "--force")

    def test_wrong_usage(self):
        see = "; see cephalo tokenize train --help"
        self.refuses(2, f"CORPUS is required{see}", "train", "-o", "x")
        self.refuses(2, f"--output is required{see}", "train", self.corpus)
        for wrong in ("12abc", "256", "1e3", "99999999999999999999", "-1"):
            self.refuses(2, f"--vocab-size: '{wrong}' is not a whole number from 257 to 1000000",
                         "train", self.corpus, "-o", self.output, "--vocab-size", wrong)
        self.refuses(1, f"{self.folder / 'none'}: No such file or directory", "train",
                     self.folder / "none", "-o", self.output)


if __name__ == "__main__":
    sys.argv = sys.argv[:1]
    unittest.main()
