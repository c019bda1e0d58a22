"""look as a person and as a script use it."""

import ast
import csv
import json
import math
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree
import zlib

import screen

CEPHALO = sys.argv[1]
ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "models/cephalo-small"
TEXT = "The cat sat on the mat"
REPEATS = "Peter Rabbit met Jemima. Peter Rabbit met Jemima. Peter"
CONFIG = json.loads((MODEL / "config.json").read_text())
LAYERS, HEADS = CONFIG["n_layer"], CONFIG["n_head"]
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def look(*arguments, **environment):
    env = {**os.environ, "LC_ALL": "C.UTF-8", **environment}
    return subprocess.run([CEPHALO, "look", *map(os.fsencode, map(str, arguments))],
                          capture_output=True, env=env)


class Look(unittest.TestCase):
    def ok(self, *arguments, **environment):
        result = look(*arguments, **environment)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stderr, b"")
        return result.stdout.decode()

    def refuses(self, status, message, *arguments):
        result = look(*arguments)
        self.assertEqual(result.returncode, status, result.stderr)
        self.assertEqual(result.stdout, b"")
        self.assertEqual(result.stderr.decode(), f"error: {message}\n")


class Text(Look):
    def test_tokens_heads_and_what_comes_next(self):
        out = self.ok(TEXT)
        self.assertIn('token  "<|endoftext|>"  "The"', out)
        self.assertRegex(out, r"(?m)^ {10}H0 .*" + f"H{HEADS - 1}$")
        for layer in range(LAYERS):
            self.assertEqual(len(re.findall(rf"(?m)^layer {layer} +(\S+ +){{{HEADS - 1}}}\S+$", out)), 1)
        self.assertIn("next token\n", out)
        self.assertIn("A label is a pattern of the weights, not an effect on the output.", out)
        self.assertIn("seed 123", self.ok(TEXT, "--all"))
        self.assertEqual(len(re.findall(r"^  \"[^\n]*\d+\.\d %", out, re.MULTILINE)), 5)

    def test_it_fits_any_width(self):
        for width in ("40", "80", "100", "173"):
            for arguments in ([TEXT], [REPEATS], [TEXT * 4], [TEXT, "--token", "sat"], ["word " * 90]):
                lines = self.ok(*arguments, COLUMNS=width).splitlines()
                widest = max(lines, key=len)
                self.assertLessEqual(len(widest), int(width), widest)

    def test_no_escape_codes_reach_a_pipe(self):
        for arguments in ((), ("--all",), ("--layer", "0", "--head", "0"), ("--token", "sat"),
                          ("--json",)):
            out = self.ok(TEXT + " \x1b[31m", *arguments, TERM="xterm-256color",
                          COLORTERM="truecolor")
            self.assertNotIn("\x1b", out)

    def test_without_utf8_all_is_ascii(self):
        for arguments in ((), ("--all",), ("--layer", "0", "--head", "0"), ("--token", "sat")):
            self.ok(TEXT, *arguments, LC_ALL="C").encode("ascii")

    def test_C5_the_locale_changes_no_number(self):
        self.assertEqual(self.ok(TEXT, LC_ALL="de_DE.UTF-8"), self.ok(TEXT))

    def test_one_layer_one_head_one_token(self):
        out = self.ok(TEXT, "--layer", "1")
        self.assertIn("L1 H0", out)
        self.assertNotIn("L0 H0", out)
        out = self.ok(TEXT, "--layer", "1", "--head", "2")
        self.assertTrue(out.startswith("layer 1 head 2"))
        self.assertIn("row = query, looks at \u2192 column = key", out)
        out = self.ok(TEXT, "--token", "sat")
        self.assertEqual(len(re.findall(r"^L\d+ H\d+ ", out, re.MULTILINE)), LAYERS * HEADS)

    def test_a_tokens_row_is_strongest_first(self):
        for line in self.ok(TEXT, "--token", "sat").splitlines():
            if not re.match(r"L\d+ H\d+ ", line):
                continue
            weights = [float(w) for w in re.findall(r"(?<= )(?:1\.0|\.\d\d)", line)]
            self.assertEqual(weights, sorted(weights, reverse=True))

    def test_maps_without_the_first_token_say_why(self):
        for arguments in ([], ["--layer", "0"], ["--token", "sat"], ["--layer", "0", "--head", "0"]):
            plain = " ".join(self.ok(TEXT, *arguments).split())
            self.assertNotIn("rest there", plain)
            out = " ".join(self.ok(TEXT, "--no-sink", *arguments).split())
            self.assertIn("The first token is left out: heads rest there when they find nothing", out)
            out = " ".join(self.ok(TEXT, "--value-weighted", *arguments).split())
            self.assertIn("many heads rest on the first one, whose value moves little", out)
        out = self.ok(TEXT, "--no-sink", "--token", "sat")
        self.assertNotRegex(out, r"L\d H\d.*endoftext")

    def test_a_token_that_is_there_twice(self):
        out = self.ok("a cat and a cat", "--token", "cat")
        self.assertIn("it is in the text more than once: --token", out)

    def test_long_texts_are_pooled_and_say_so(self):
        out = self.ok("once upon a time " * 40)
        self.assertIn("a cell shows the largest weight of about", out)
        self.assertIn("cephalo tokenize lists them all", out)
        out = self.ok("once upon a time " * 40, "--layer", "0", "--head", "0")
        self.assertIn("a cell shows the largest weight of about", out)

    def test_the_title_shows_a_line_end_as_what_it_is(self):
        self.assertTrue(self.ok("one\ntwo\x1b").startswith("one\\ntwo\\x1B  "))

    def test_any_bytes(self):
        for text in ("", "\x07\x1b]0;x\x07", b"\xff\xfe\x00"[:2], "日本語 text", "\n\n\t"):
            result = look(text)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertNotIn(b"\x07", result.stdout)


class FirstScreen(Look):
    def test_the_demo_fits_80_x_50_with_a_prompt_below(self):
        demo = re.search(r"(?m)^DEMO_TEXT := (.+)$", (ROOT / "Makefile").read_text())[1]
        lines = screen.on_a_terminal(CEPHALO, "look", demo, columns=80, COLORTERM="truecolor").splitlines()
        self.assertLessEqual(len(lines), 49)

    def test_two_sentences_say_what_one_sees(self):
        out = " ".join(self.ok(REPEATS).split())
        self.assertIn("Each map is one head: a row is a token, and the denser a cell, the more it looks "
                      "at the token of that column. Here L", out)
        self.assertIn("the brighter a cell", " ".join(
            screen.on_a_terminal(CEPHALO, "look", REPEATS, columns=80, COLORTERM="truecolor").split()))
        self.assertRegex(out, r"Here L\d H\d looks at the token before.*; the likeliest next token is "
                              r"\"[^\"]+\" \(\d+ %\)\.")

    def test_maps_that_show_something_come_first(self):
        heads = {f"L{h['layer']} H{h['head']}": h for h in json.loads(self.ok(REPEATS, "--json"))["heads"]}
        names = re.search(r"(?m)^(L\d H\d +){3}L\d H\d$", self.ok(REPEATS)).group()
        shown = [heads[name] for name in re.findall(r"L\d H\d", names)]
        self.assertEqual(len(shown), 4)
        self.assertIn("previous", [label["label"] for label in shown[0]["labels"]])
        for head in shown:  # none because of a label that this text does not use
            labels = {label["label"] for label in head["labels"]}
            used = [name for name in labels - {"sink", "diffuse"}
                    if name in ("previous", "current") or head["metrics"][name] >= 0.2]
            self.assertTrue(used, head)

    def test_every_label_has_a_number_of_its_own(self):
        out = self.ok(REPEATS, "--all")
        found = 0
        for head in json.loads(self.ok(REPEATS, "--json"))["heads"]:
            for label in head["labels"]:
                score = f"{label['score']:.2f}".removeprefix("0").replace("1.00", "1.0")
                self.assertIn(f"{label['label']} {score}", out)
                found += 1
        # Nothing else follows a label: a number, or the words of the headings.
        maps = out[:out.index("previous sink current")]
        self.assertEqual(len(re.findall("previous|induction|duplicate|sink|current|diffuse", maps)), found)


class Maps(Look):
    def rows(self, *arguments, **environment):
        """How many maps stand beside each other, row by row."""
        out = self.ok(*arguments, **environment)
        return [len(re.findall(r"L\d H\d", line)) for line in out.splitlines()
                if re.fullmatch(r"(L\d H\d *)+", line)], out

    def test_10_tokens_are_not_pooled_at_80_columns(self):
        text = "one two three four five six seven eight nine"
        tokens = len(json.loads(self.ok(text, "--json"))["tokens"])
        self.assertGreaterEqual(tokens, 10)
        rows, out = self.rows(text, "--layer", "0", COLUMNS="80")
        self.assertEqual(rows, [4, 4])
        self.assertNotIn("a cell shows", out)
        self.assertIn("\u2588" + " " * 15, out)

    def test_heads_split_evenly(self):
        self.assertEqual(self.rows(TEXT, "--layer", "0", COLUMNS="60")[0], [4, 4])
        self.assertEqual(self.rows(TEXT, "--layer", "0", COLUMNS="100")[0], [4, 4])
        self.assertEqual(self.rows(TEXT, "--layer", "0", COLUMNS="45")[0], [3, 3, 2])
        self.assertEqual(self.rows(TEXT, "--layer", "0", COLUMNS="120")[0], [8])


class Words(Look):
    def test_one_set_of_words(self):
        out = self.ok(TEXT, "--layer", "0")
        self.assertIn("previous sink current duplicate induction entropy", out)
        self.assertIn("  sink               ", self.ok(TEXT, "--layer", "0", "--head", "0"))

    def test_entropy_says_which_end_is_which(self):
        self.assertRegex(self.ok(TEXT, "--layer", "1", "--head", "6"),
                         r"entropy +0\.\d+ \(0 = one token alone, 1 = all tokens equally\)")

    def test_help_says_what_a_number_is(self):
        self.assertIn("How many next tokens to show", self.ok("--help"))
        out = subprocess.run([CEPHALO, "train", "--help"], capture_output=True, text=True).stdout
        self.assertIn("Peak learning rate", out)


class Input(Look):
    def test_a_text_from_stdin_or_a_file(self):
        said = self.ok(TEXT, "--json")
        piped = subprocess.run([CEPHALO, "look", "-", "--json"], input=TEXT + "\n", text=True,
                               capture_output=True)
        self.assertEqual((piped.stdout, piped.stderr), (said, ""))
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write(TEXT + "\n")
            file.flush()
            self.assertEqual(self.ok("--file", file.name, "--json"), said)
            self.refuses(2, "--file: TEXT is also given; use only one of them", TEXT, "--file",
                         file.name)
        self.refuses(1, "/nowhere: No such file or directory", "--file", "/nowhere")

    def test_a_text_without_end_is_refused(self):
        result = subprocess.run(f"yes | {CEPHALO} look -", shell=True, capture_output=True, text=True)
        self.assertEqual(result.stderr, "error: stdin: is longer than the 16 MiB that a text may have\n")
        self.assertEqual(result.returncode, 1)

    def test_a_text_without_quotes_gets_a_hint(self):
        self.refuses(2, "unknown word 'cat'; a text of several words needs quotes: "
                        "cephalo look \"The cat sat\"; see cephalo look --help", "The", "cat", "sat")
        self.refuses(2, "unknown word 'cat'; see cephalo look --help", "The", "cat", "--lyer")


class Terminal(Look):
    def test_24_bits_256_colours_or_none(self):
        self.assertIn("\x1b[38;2;", screen.on_a_terminal(CEPHALO, "look", TEXT, COLORTERM="truecolor"))
        self.assertIn("\x1b[38;5;", screen.on_a_terminal(CEPHALO, "look", TEXT))
        self.assertNotIn("38;2;", screen.on_a_terminal(CEPHALO, "look", TEXT))
        for plain in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
            self.assertNotIn("\x1b", screen.on_a_terminal(CEPHALO, "look", TEXT, **plain))
        self.assertNotIn("38;5;", screen.on_a_terminal(CEPHALO, "look", TEXT, TERM="linux"))

    def test_colours_change_nothing_but_colours(self):
        arguments = (TEXT, "--token", "sat")
        coloured = ESCAPE.sub("", screen.on_a_terminal(CEPHALO, "look", *arguments, COLORTERM="truecolor"))
        strip = lambda text: [line.rstrip() for line in text.splitlines()]
        self.assertEqual(strip(coloured), strip(screen.on_a_terminal(CEPHALO, "look", *arguments, NO_COLOR="1")))

    def test_it_is_as_wide_as_the_terminal(self):
        for columns in (60, 80, 120):
            out = ESCAPE.sub("", screen.on_a_terminal(CEPHALO, "look", TEXT, columns=columns))
            maps = [line for line in out.splitlines() if "▀" in line]
            self.assertTrue(maps)
            self.assertLessEqual(max(map(len, maps)), columns)


class Json(Look):
    def test_the_same_numbers(self):
        out = json.loads(self.ok(TEXT, "--json"))
        self.assertEqual(out["text"], TEXT)
        self.assertEqual(out["model"]["name"], "cephalo-small")
        self.assertEqual(len(out["heads"]), LAYERS * HEADS)
        self.assertEqual(out["tokens"][0]["piece"], "<|endoftext|>")
        self.assertEqual("".join(t["piece"] for t in out["tokens"][1:]).replace("\u0120", " "), TEXT)
        self.assertNotIn("weights", out["heads"][0])
        self.assertEqual(out["probe"], {"length": 50, "draws": 4, "seed": 123})
        for head in out["heads"]:
            self.assertIn("probe_induction", head["metrics"])
        self.assertIsNone(out["heads"][0]["metrics"]["duplicate"] if len(
            {t["id"] for t in out["tokens"]}) == len(out["tokens"]) else None)

    def test_weights_of_the_heads_asked_for(self):
        out = json.loads(self.ok(TEXT, "--json", "--all"))
        tokens = len(out["tokens"])
        for head in out["heads"]:
            rows = head["weights"]
            self.assertEqual([len(row) for row in rows], list(range(1, tokens + 1)))
            for row in rows:
                self.assertAlmostEqual(sum(row), 1.0, places=5)
            previous = sum(rows[i][i - 1] for i in range(1, tokens)) / (tokens - 1)
            self.assertAlmostEqual(head["metrics"]["previous"], previous, places=5)
            entropy = sum(-sum(w * math.log(w) for w in row if w > 0) / math.log(len(row))
                          for row in rows[1:]) / (tokens - 1)
            self.assertAlmostEqual(head["metrics"]["entropy"], entropy, places=5)
        one = json.loads(self.ok(TEXT, "--json", "--layer", "1", "--head", "2"))
        self.assertEqual([h["head"] for h in one["heads"] if "weights" in h], [2])

    def test_weights_without_the_first_token(self):
        plain = json.loads(self.ok(TEXT, "--json", "--all"))
        out = json.loads(self.ok(TEXT, "--json", "--all", "--no-sink"))
        self.assertEqual(out["maps"], {"no_first": True, "value_weighted": False})
        for head, other in zip(plain["heads"], out["heads"]):
            self.assertEqual(other["weights"][0], [None])
            for row, left in zip(head["weights"][1:], other["weights"][1:]):
                self.assertIsNone(left[0])
                for weight, share in zip(row[1:], left[1:]):
                    self.assertAlmostEqual(weight / sum(row[1:]), share, places=5)

    def test_the_built_in_model_is_the_one_in_the_folder(self):
        ours = json.loads(self.ok(TEXT, "--json"))
        folder = json.loads(self.ok(TEXT, "--json", "--model", MODEL))
        self.assertEqual(folder["model"].pop("name"), str(MODEL))
        ours["model"].pop("name")
        self.assertEqual(ours, folder)

    def test_the_seed_is_the_probes(self):
        scores = [[h["metrics"]["probe_induction"] for h in
                   json.loads(self.ok(TEXT, "--json", "--seed", seed))["heads"]]
                  for seed in ("1", "1", "2")]
        self.assertEqual(scores[0], scores[1])
        self.assertNotEqual(scores[0], scores[2])

    def test_without_the_token_that_begins(self):
        out = json.loads(self.ok(TEXT, "--json", "--no-begin"))
        self.assertFalse(out["begun"])
        self.assertNotEqual(out["tokens"][0]["piece"], "<|endoftext|>")


class Labels(Look):
    """Of the built-in model; tests/view/builtin_heads_test.cc holds the scores."""

    def test_previous_and_induction_are_printed(self):
        for text in (TEXT, f"{TEXT} and the dog sat on the rug. {TEXT}.",
                     "Once upon a time there was a king. Once upon a time there was a queen."):
            out = self.ok(text)
            self.assertRegex(out, r"(?m)^P previous +L\d H\d")
            self.assertRegex(out, r"(?m)^I induction +L\d H\d .*on the probe")

    def expected(self, text):
        """The line of induction by the rule, and the pairs that count as its links."""
        out = json.loads(self.ok(text, "--json", "--all"))
        heads = [(head["metrics"]["induction"], label["score"], head) for head in out["heads"]
                 for label in head["labels"] if label["label"] == "induction"]
        ids = [token["id"] for token in out["tokens"]]
        names = [t["piece"].removeprefix("\u0120").replace("\u010a", "\\n") for t in out["tokens"]]
        pairs = {(names[i], names[j]) for i in range(len(ids)) for j in range(1, i)
                 if ids[j - 1] == ids[i]}
        if heads[0][0] is None:
            probe, best = max((probe, -k) for k, (_, probe, _) in enumerate(heads))
            head = heads[-best][2]
            return f"L{head['layer']} H{head['head']} {probe:.2f} on the probe; nothing repeats here", pairs
        here, probe, head = max(heads, key=lambda found: found[:2])
        line = f"L{head['layer']} H{head['head']} {here:.2f} here, {probe:.2f} on the probe"
        return line + ("" if here >= 0.2 else ": not used by this text"), pairs

    def test_induction_is_shown_by_the_head_that_this_text_uses_most(self):
        book = (ROOT / "tests/view/held_out_page.txt").read_text()[:700]
        for text in (REPEATS, TEXT, f"{TEXT}. The cat sat on the", book):
            line, pairs = self.expected(text)
            out = self.ok(text, COLUMNS="200").splitlines()
            at = next(k for k, shown in enumerate(out) if shown.startswith("I induction  "))
            self.assertTrue(out[at].startswith("I induction  " + line), (out[at], line))
            links = re.findall(r"(\S+) \u2192 (\S+) (?:1\.0|\.\d\d)", out[at + 1])
            self.assertEqual(out[at + 1].startswith("  "), "not used" not in line and "nothing" not in line)
            for query, key in links if out[at + 1].startswith("  ") else []:
                matches = [(q, k) for q, k in pairs if q.startswith(query.rstrip("\u2026"))
                           and k.startswith(key.rstrip("\u2026"))]
                self.assertTrue(matches, f"{query} \u2192 {key} is not induction")


class Png(Look):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def read(self, path):
        png = path.read_bytes()
        width, height = struct.unpack(">II", png[16:24])
        length, = struct.unpack(">I", png[33:37])
        rows = zlib.decompress(png[41:41 + length])
        self.assertEqual(len(rows), height * (1 + 3 * width))
        return width, height, rows

    def test_all_heads_one_layer_and_one_head(self):
        sizes = []
        for arguments in ((), ("--layer", "1"), ("--layer", "1", "--head", "2")):
            path = self.folder / f"{len(arguments)}.png"
            out = self.ok(TEXT, "--png", path, *arguments)
            width, height, _ = self.read(path)
            self.assertIn(f"{width} x {height} pixels", out)
            sizes.append((width, height))
        self.assertEqual(sizes[0][0], sizes[1][0])
        self.assertGreater(sizes[0][1], sizes[1][1])

    def test_letters_are_smooth_and_tokens_stand_beside_their_maps(self):
        path = self.folder / "a.png"
        self.ok("Café", "--png", path)
        width, height, rows = self.read(path)
        at = lambda x, y: rows[y * (1 + 3 * width) + 1 + 3 * x]  # its red
        title = {at(x, y) for x in range(24, 24 + 40) for y in range(20, 40)}
        self.assertGreater(len(title), 10)  # more than paper and ink
        self.assertGreaterEqual(max(title), 220)
        # Between the page's edge and the first map, below its title: the names of its rows.
        left = {at(x, y) for x in range(24, 90) for y in range(200, 260)}
        self.assertGreaterEqual(max(left), 140)

    def test_svg_has_the_tokens_as_text(self):
        both = self.folder / "a.png", self.folder / "a.svg"
        self.ok("Café & <b> 日本 \u202ex", "--svg", both[1], "--png", both[0])
        root = xml.etree.ElementTree.parse(both[1]).getroot()
        texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
        self.assertIn("Café & <b> 日本 \\xE2\\x80\\xAEx", texts)
        for word in ("L0 H0", "hidden", "row = query, looks at \u2192 column = key"):
            self.assertTrue([text for text in texts if word in text], word)
        self.assertEqual(len([t for t in texts if t == "&"]), 2 * LAYERS * HEADS)  # on both axes
        self.assertEqual((int(root.get("width")), int(root.get("height"))), self.read(both[0])[:2])

    def test_C3_an_existing_file_stays_unless_forced(self):
        path = self.folder / "here.png"
        path.write_text("mine")
        self.refuses(1, f"{path}: already exists; --force overwrites it", TEXT, "--png", path)
        self.assertEqual(path.read_text(), "mine")
        self.ok(TEXT, "--png", path, "--force")
        self.read(path)
        missing = self.folder / "no/where.png"
        self.refuses(1, f"{missing}: No such file or directory", TEXT, "--png", missing)
        for kind in ("png", "svg"):
            for name in ("-", "x.jpg", kind):
                self.refuses(2, f"--{kind}: '{name}' does not end in .{kind}, which is what it writes",
                             TEXT, f"--{kind}", name)
        self.assertEqual([p.name for p in self.folder.iterdir()], ["here.png"])


class Numbers(Look):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_csv_and_npy_hold_the_weights_of_the_head(self):
        both = self.folder / "a.csv", self.folder / "a.npy"
        head = "--layer", "3", "--head", "1"
        self.ok('He said "no"', *head, "--csv", both[0], "--npy", both[1])
        report = json.loads(self.ok('He said "no"', *head, "--json"))
        weights = next(h["weights"] for h in report["heads"] if "weights" in h)
        tokens = len(weights)
        header, *rows = list(csv.reader(both[0].open()))
        self.assertEqual(header, ["query", "token", *map(str, range(tokens))])
        self.assertEqual([row[1] for row in rows][1:3], ["He", "said"])
        for i, row in enumerate(rows):
            self.assertEqual([cell == "" for cell in row[2:]], [j > i for j in range(tokens)])
            for j in range(i + 1):
                self.assertAlmostEqual(float(row[2 + j]), weights[i][j], delta=1e-8)
        bytes_ = both[1].read_bytes()
        size, = struct.unpack("<H", bytes_[8:10])
        described = ast.literal_eval(bytes_[10:10 + size].decode())
        self.assertEqual(described, {"descr": "<f4", "fortran_order": False, "shape": (tokens, tokens)})
        numbers = struct.unpack(f"<{tokens * tokens}f", bytes_[10 + size:])
        for n, number in enumerate(numbers):
            query, key = divmod(n, tokens)
            self.assertAlmostEqual(number, weights[query][key] if key <= query else 0, delta=1e-6)

    def test_C1_they_are_of_one_head(self):
        for kind in ("csv", "npy"):
            self.refuses(2, f"--{kind}: writes one head; choose it with --layer and --head",
                         TEXT, "--layer", "1", f"--{kind}", f"x.{kind}")
            self.refuses(2, f"--{kind}: 'x.txt' does not end in .{kind}, which is what it writes",
                         TEXT, "--layer", "1", "--head", "1", f"--{kind}", "x.txt")


class Refused(Look):
    def test_C1_C2_wrong_usage(self):
        last = LAYERS - 1
        self.refuses(2, "no TEXT given; pass one, - for stdin, or --file FILE; see cephalo look --help")
        self.refuses(2, f"--layer: '{LAYERS}' is not a whole number from 0 to {last}", TEXT,
                     "--layer", LAYERS)
        self.refuses(2, f"--layer: '1e3' is not a whole number from 0 to {last}", TEXT, "--layer",
                     "1e3")
        self.refuses(2, f"--head: needs a layer too, --layer 0 to {last}", TEXT, "--head",
                     "1")
        self.refuses(2, f"--seed: '-1' is not a whole number from 0 to {2**64 - 1}", TEXT,
                     "--seed=-1")
        self.refuses(2, "--token: shows its row in every head; omit --head", TEXT, "--token",
                     "sat", "--layer", "0", "--head", "0")
        self.refuses(2, "unknown flag '--lyer' (did you mean --layer?); see cephalo look --help",
                     TEXT, "--lyer", "0")

    def test_a_token_that_is_not_there(self):
        result = look(TEXT, "--token", "dog")
        self.assertEqual(result.returncode, 2)
        self.assertIn("error: --token: 'dog' is neither a token of the text nor an index from 0 to",
                      result.stderr.decode())

    def test_a_text_that_is_too_long(self):
        result = look("word " * 500)
        self.assertEqual(result.returncode, 2)
        self.assertIn(f"more than cephalo-small reads at once ({CONFIG['n_positions']}); use a "
                      "part of it", result.stderr.decode())

    def test_a_folder_without_a_model(self):
        result = look(TEXT, "--model", "/nowhere")
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stderr.decode(),
                         "error: /nowhere/config.json: No such file or directory\n")

    def test_C4_a_reader_that_goes_away_hears_nothing(self):
        for command in (["look", TEXT], ["look", TEXT, "--json", "--all"], ["trace"], ["--help"],
                        ["look", "--help"], ["tokenize", TEXT], ["generate", "The cat"]):
            reader, writer = os.pipe()
            os.close(reader)
            result = subprocess.run([CEPHALO, *command], stdout=writer, stderr=subprocess.PIPE)
            os.close(writer)
            self.assertEqual((result.returncode, result.stderr), (1, b""), command)


class Defaults(unittest.TestCase):
    def test_tokenize_uses_the_built_in_vocabulary(self):
        ours = subprocess.run([CEPHALO, "tokenize", TEXT, "--json"], capture_output=True, check=True)
        folder = subprocess.run([CEPHALO, "tokenize", TEXT, "--json", "--vocab", MODEL],
                                capture_output=True, check=True)
        self.assertEqual(ours.stdout, folder.stdout)


if __name__ == "__main__":
    sys.argv = sys.argv[:1]
    unittest.main()
