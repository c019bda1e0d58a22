"""cephalo trace TEXT: one head of a trained model by hand, as a person and as a script use it."""

import json
import math
import os
import pathlib
import re
import subprocess
import sys
import unittest

CEPHALO = sys.argv[1]
MODEL = pathlib.Path(__file__).resolve().parents[2] / "models/cephalo-small"
TEXT = "The cat sat on the mat. The cat"
LONG = " ".join(["the", "cat", "sat", "and"] * 55)


def trace(*arguments, stdin="", **environment):
    env = {**os.environ, "LC_ALL": "C.UTF-8", **environment}
    return subprocess.run([CEPHALO, "trace", *map(str, arguments)], capture_output=True, text=True,
                          input=stdin, env=env, encoding="utf-8")


class TraceTest(unittest.TestCase):
    def ok(self, *arguments, **environment):
        result = trace(*arguments, **environment)
        self.assertEqual((result.returncode, result.stderr), (0, ""), arguments)
        return result.stdout

    def json(self, *arguments, **environment):
        return json.loads(self.ok(*arguments, "--json", **environment))

    def refuses(self, status, message, *arguments, **environment):
        result = trace(*arguments, **environment)
        self.assertEqual((result.returncode, result.stdout), (status, ""), arguments)
        self.assertEqual(result.stderr, f"error: {message}\n")


class Numbers(TraceTest):
    def test_every_number_follows_from_q_k_and_v(self):
        t = self.json(TEXT, "--layer", "3", "--head", "1", "--token", "7")
        self.assertEqual((t["layer"], t["head"], t["token"], len(t["keys"])), (3, 1, 7, 8))
        self.assertAlmostEqual(t["scale"], 1 / math.sqrt(t["head_dim"]), places=15)
        scores = []
        for key in t["keys"]:
            product = sum(a * b for a, b in zip(t["q"], key["k"]))
            self.assertAlmostEqual(key["product"], product, places=9)
            self.assertAlmostEqual(key["score"], product * t["scale"], places=9)
            scores.append(key["score"])
        powers = [math.exp(score - max(scores)) for score in scores]
        for key, power in zip(t["keys"], powers):
            self.assertAlmostEqual(key["weight"], power / sum(powers), places=12)
        for d, number in enumerate(t["context"]):
            mixed = sum(key["weight"] * key["v"][d] for key in t["keys"])
            self.assertAlmostEqual(number, mixed, places=9)
        self.assertAlmostEqual(sum(head["share"] for head in t["heads"]), 1, places=12)
        norms = sum(head["norm"] for head in t["heads"])
        self.assertAlmostEqual(t["heads"][1]["share"], t["heads"][1]["norm"] / norms, places=12)
        self.assertLessEqual(t["added_norm"], norms)

    def test_weights_are_those_that_look_shows(self):
        out = subprocess.run([CEPHALO, "look", TEXT, "--layer", "3", "--head", "1", "--json"],
                             capture_output=True, text=True).stdout
        head = next(h for h in json.loads(out)["heads"] if "weights" in h)
        t = self.json(TEXT, "--layer", "3", "--head", "1")
        self.assertEqual(t["token"], len(t["tokens"]) - 1)
        for key, weight in zip(t["keys"], head["weights"][-1], strict=True):
            self.assertAlmostEqual(key["weight"], weight, places=5)

    def test_the_built_in_model_is_the_one_in_its_folder(self):
        inside, outside = self.json(TEXT), self.json(TEXT, "--model", MODEL)
        self.assertEqual(inside["model"].pop("name"), "cephalo-small")
        self.assertEqual(outside["model"].pop("name"), str(MODEL))
        self.assertEqual(inside["model"], outside["model"])
        self.assertEqual(inside["keys"], outside["keys"])

    def test_the_first_token_is_prepended_and_can_be_left_out(self):
        self.assertEqual(self.json(TEXT)["tokens"][0]["text"], "<|endoftext|>")
        bare = self.json(TEXT, "--no-begin")
        self.assertEqual((bare["began"], bare["tokens"][0]["text"]), (False, "The"))


class Table(TraceTest):
    def test_a_row_for_every_key_and_one_cell_by_hand(self):
        out = self.ok(TEXT, "--layer", "3", "--head", "1")
        t = self.json(TEXT, "--layer", "3", "--head", "1")
        rows = re.findall(r"(?m)^ +(\d+) (\S+) +([-\d.]+) +([-\d.]+) +(<?[\d.]+) +([\d.]+)((?: +[-\d.]+){3})$",
                          out)
        self.assertEqual([int(row[0]) for row in rows], list(range(10)))
        for row, key in zip(rows, t["keys"]):
            self.assertAlmostEqual(float(row[2]), key["product"], delta=6e-4)
            self.assertAlmostEqual(float(row[3]), key["score"], delta=6e-4)
            self.assertAlmostEqual(float(row[4].lstrip("<")), key["weight"], delta=1e-3)
            self.assertAlmostEqual(float(row[5]), key["adds"], delta=6e-4)
        # The columns of v are where the context is largest, and end in it.
        largest = sorted(range(32), key=lambda d: -abs(t["context"][d]))[:3]
        self.assertEqual([int(d) for d in re.findall(r"v\[(\d+)\]", out.split("adds:")[0])], largest)
        sums = re.search(r"(?m)^ +sum \(of v: weight x v\) +1\.000((?: +[-\d.]+){3})$", out).group(1)
        for shown, d in zip(sums.split(), largest):
            self.assertAlmostEqual(float(shown), t["context"][d], delta=6e-4)
        best = max(t["keys"], key=lambda key: key["weight"])
        self.assertIn(f'key {best["i"]} "sat"', out)
        self.assertIn(f'{best["product"]:.3f} / sqrt(32) = {best["score"]:.3f}', out)
        self.assertIn("rotary", out)

    def test_each_heads_share_is_shown_and_defined(self):
        out = " ".join(self.ok(TEXT, "--layer", "3").split())
        self.assertIn("the length of z W_out (its context through its own columns of the output projection), "
                      "and its share of the sum of these lengths", out)
        for head in self.json(TEXT, "--layer", "3")["heads"]:
            self.assertIn(f'head {head["head"]} {head["norm"]:.3f} {head["share"]:.2f}', out)

    def test_long_texts_stay_readable_and_say_what_is_left_out(self):
        out = self.ok(LONG, "--layer", "2", "--head", "3")
        self.assertLess(len(out.splitlines()), 60)
        keys = len(self.json(LONG)["keys"])
        shown = len(re.findall(r"(?m)^ *\d+ \S+ +[-\d.]+ +[-\d.]+ +<?[\d.]+ +[\d.]+(?: +[-\d.]+){3}$", out))
        self.assertIn(shown, (10, 11))
        self.assertIn(f"{keys - shown} keys are left out: their weights are ", out)
        self.assertIn(f"--top {keys} (every key)", " ".join(out.split()))
        self.assertNotIn("left out", self.ok(LONG, "--top", keys))

    def test_it_fits_any_width(self):
        for width in ("40", "57", "80", "173"):
            for arguments in ([TEXT], [LONG], [TEXT, "--explain"], ["a\nb", "--batch", "1"]):
                widest = max(self.ok(*arguments, COLUMNS=width).splitlines(), key=len)
                self.assertLessEqual(len(widest), int(width), widest)

    def test_what_is_printed_is_plain_in_a_pipe(self):
        self.ok(TEXT, LC_ALL="C").encode("ascii")
        self.assertNotIn("\x1b", self.ok(TEXT + " \x1b[31m", TERM="xterm-256color"))
        self.assertEqual(self.ok(TEXT, LC_ALL="de_DE.UTF-8"), self.ok(TEXT))

    def test_explain_says_why(self):
        out = self.ok(TEXT, "--explain")
        for step in ("ROTATE", "SCORES", "SCALE", "SOFTMAX", "VALUES", "PROJECT OUT"):
            self.assertIn(f"\n{step}\n   what    ", out)

    def test_a_token_by_its_letters_or_its_place(self):
        self.assertEqual(self.json(TEXT, "--token", "sat")["token"], 3)
        self.assertEqual(self.json(TEXT, "--token", "cat")["token"], 9)
        self.assertEqual(self.json(TEXT, "--token", "0")["token"], 0)
        self.assertIn("the one key it may look at", " ".join(self.ok(TEXT, "--token", "0").split()))


class Batch(TraceTest):
    LINES = "A dog\n\nOnce upon a time there was a pig\r\n" + TEXT + "\n"

    def test_lines_are_a_padded_batch_and_each_gives_what_it_gives_alone(self):
        for batch, text in enumerate(["A dog", "Once upon a time there was a pig", TEXT]):
            t = self.json("-", "--batch", batch, "--layer", "2", "--head", "3", stdin=self.LINES)
            self.assertEqual(t["text"], text)
            self.assertEqual(t["batch"]["sequence"], batch)
            self.assertEqual(t["batch"]["padded_to"], 10)
            self.assertEqual([one["tokens"] for one in t["batch"]["texts"]], [3, 9, 10])
            alone = self.json(text, "--layer", "2", "--head", "3")
            for a, b in zip(t["keys"], alone["keys"], strict=True):
                self.assertAlmostEqual(a["weight"], b["weight"], places=5)
                self.assertAlmostEqual(a["product"], b["product"], places=3)

    def test_padding_is_said(self):
        out = " ".join(self.ok("-", "--batch", "0", stdin=self.LINES).split())
        self.assertIn("a batch of 3 texts, ids [3, 10]; shorter ones end in padding (id 4095)", out)
        self.assertIn("> 0 A dog 3 tokens + 7 padding", out)

    def test_a_text_of_several_lines_is_one_text_without_batch(self):
        t = self.json("-", stdin="A dog\nA cat\n")
        self.assertEqual(t["text"], "A dog\nA cat")
        self.assertEqual(len(t["batch"]["texts"]), 1)

    def test_C1_lines_that_are_not_there_are_refused(self):
        self.refuses(2, "--batch: '3' is not a whole number from 0 to 2", "-", "--batch", "3", stdin=self.LINES)
        self.refuses(2, "--batch: TEXT has no line with a text in it", "-", "--batch", "0", stdin="\n\n")
        self.refuses(2, "--batch: TEXT has 300 lines, and at most 256 are traced at once", "-", "--batch",
                     "0", stdin="a\n" * 300)


class Mistakes(TraceTest):
    def test_C1_wrong_usage_is_one_line_and_status_2(self):
        self.refuses(2, "no TEXT given; pass one, - for stdin, or --file FILE; see cephalo trace --help",
                     "--layer", "1")
        self.refuses(2, "--layer: '4' is not a whole number from 0 to 3", TEXT, "--layer", "4")
        self.refuses(2, "--head: '8' is not a whole number from 0 to 7", TEXT, "--head", "8")
        self.refuses(2, "--token: 'dog' is neither a token of the text nor an index from 0 to 2; its tokens "
                        "are: <|endoftext|> A cat", "A cat", "--token", "dog")
        self.refuses(2, "TEXT: is empty, and no token was prepended", "", "--no-begin")
        result = trace(LONG * 2)
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertIn("reads at once (256); use a part of it", result.stderr)

    def test_flags_of_an_untrained_layer_are_refused(self):
        for flags in (("--rung", "5"), ("--seed", "1"), ("--text", "a"), ("--preset", "gpt2"),
                      ("--picture",), ("--qkv-bias",), ("--input", "x.npy")):
            self.refuses(2, f"{flags[0]}: belongs to a layer that was not trained; with TEXT or --model the "
                            "parameters are the model's", TEXT, *flags)

    def test_a_model_that_is_not_there_is_bad_data(self):
        result = trace(TEXT, "--model", "/nowhere")
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertEqual(len(result.stderr.splitlines()), 1)

    def test_without_a_text_it_is_the_untrained_layer(self):
        self.assertIn("untrained parameters", self.ok())
        t = self.json()
        self.assertEqual((t["trained"], t["model"], t["began"]), (False, None, None))


if __name__ == "__main__":
    sys.argv = sys.argv[:1]
    unittest.main()
