"""look --effects, --ablate, --pairs, --edges, lens and patch as a person uses them."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree

import screen

CEPHALO = sys.argv[1]
REPEATS = "Peter Rabbit met Jemima. Peter Rabbit met Jemima. Peter"
CLEAN, CORRUPT = "Peter met Mary. Peter met", "Peter met John. Peter met"
PATCH = ("patch", CLEAN, CORRUPT, "--answer", " Mary", "--wrong", " John")
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
SCREENS = [("look", REPEATS, "--effects"), ("look", REPEATS, "--ablate", "L3H0,L3H1"),
           ("look", REPEATS, "--edges", "Peter"), ("lens", REPEATS), PATCH]


def cephalo(*arguments, **environment):
    env = {**os.environ, "LC_ALL": "C.UTF-8", **environment}
    return subprocess.run([CEPHALO, *map(str, arguments)], capture_output=True, text=True, env=env)


class Effects(unittest.TestCase):
    def ok(self, *arguments, **environment):
        result = cephalo(*arguments, **environment)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def words(self, *arguments, **environment):
        return " ".join(self.ok(*arguments, **environment).split())

    def refuses(self, status, message, *arguments):
        result = cephalo(*arguments)
        self.assertEqual((result.returncode, result.stdout), (status, ""), result.stderr)
        self.assertEqual(result.stderr, f"error: {message}\n")


class Screens(Effects):
    def test_they_fit_any_width(self):
        for width in ("60", "80", "120"):
            for arguments in SCREENS:
                widest = max(self.ok(*arguments, COLUMNS=width).splitlines(), key=len)
                self.assertLessEqual(len(widest), int(width), widest)

    def test_no_escape_codes_reach_a_pipe(self):
        for arguments in SCREENS:
            self.assertNotIn("\x1b", self.ok(*arguments, TERM="xterm-256color", COLORTERM="truecolor"))

    def test_without_utf8_all_is_ascii(self):
        for arguments in SCREENS:
            self.ok(*arguments, LC_ALL="C").encode("ascii")

    def test_a_terminal_gets_its_colours_and_the_same_words(self):
        for arguments in SCREENS:
            direct = screen.on_a_terminal(CEPHALO, *arguments, COLORTERM="truecolor")
            self.assertIn("\x1b[48;2;", direct)
            indexed = screen.on_a_terminal(CEPHALO, *arguments)
            self.assertIn("\x1b[48;5;", indexed)
            self.assertNotIn("\x1b[48;2;", indexed)
            plain = screen.on_a_terminal(CEPHALO, *arguments, NO_COLOR="1")
            self.assertNotRegex(plain, ESCAPE)  # a bar may have been there, and is wiped out
            for number in re.findall(r"[+-]\d+\.\d+", plain):
                self.assertIn(number, ESCAPE.sub("", direct))

    def test_signs_have_their_colours(self):
        """Blue below 0, orange above."""
        out = screen.on_a_terminal(CEPHALO, "look", REPEATS, "--effects", COLORTERM="truecolor")
        for red, blue, text in re.findall(r"\x1b\[48;2;(\d+);\d+;(\d+)m\x1b\[38;[0-9;]+m *([+-]\d\.\d+)", out):
            if abs(float(text)) > 0.5:
                self.assertEqual(int(blue) > int(red), text.startswith("-"), text)

    def test_pictures(self):
        with tempfile.TemporaryDirectory() as folder:
            for k, arguments in enumerate(SCREENS):
                png, svg = f"{folder}/{k}.png", f"{folder}/{k}.svg"
                self.ok(*arguments, "--png", png, "--svg", svg)
                self.assertTrue(pathlib.Path(png).read_bytes().startswith(b"\x89PNG"))
                texts = " ".join(xml.etree.ElementTree.parse(svg).getroot().itertext())
                for number in re.findall(r"[+-]\d+\.\d+", self.ok(*arguments, COLUMNS="200")):
                    self.assertIn(number, texts)
                result = cephalo(*arguments, "--png", png)
                self.assertEqual(result.stderr, f"error: {png}: already exists; --force overwrites it\n")
            for arguments in SCREENS:
                self.refuses(2, "--png: 'x.jpg' does not end in .png, which is what it writes", *arguments,
                             "--png", "x.jpg")
                self.refuses(2, "--svg: writes a file; omit --json, which prints", *arguments,
                             "--svg", "x.svg", "--json")


class Words(Effects):
    def test_five_heads_in_words(self):
        out = self.words("look", REPEATS, "--effects")
        self.assertIn('The likeliest next token is " Rabbit"', out)
        found = re.findall(r'layer (\d) head (\d) (raises|lowers) " Rabbit" by (\d+\.\d)[:,]', out)
        self.assertEqual(len(found), 5)
        sizes = [float(size) for *_, size in found]
        self.assertEqual(sizes, sorted(sizes, reverse=True))
        # The induction heads of this model copy, and say so; its previous-token head only feeds them.
        self.assertRegex(out, r'layer 3 head [01] raises " Rabbit" by \d\.\d: it copies what followed " Peter" '
                              r'before')
        self.assertRegex(out, r'layer 2 head 3 raises " Rabbit" by \d\.\d, through later parts of the model '
                              r'\([+-]\d\.\d directly\); it looks at the token before')

    def test_the_kind_is_said(self):
        for kind, words in (("mean", "replaced by its mean over this text"),
                            ("uniform", "made to look at all tokens equally"),
                            ("no-first", "kept from looking at the first token"),
                            ("scale:0.5", "multiplied by 0.5")):
            self.assertIn(f"Each head in turn is {words}", self.words("look", REPEATS, "--effects", "--with", kind))

    def test_a_reference_text(self):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("Once upon a time there was a king. " * 60)  # more than the model reads at once
            file.flush()
            out = self.words("look", REPEATS, "--effects", "--with", "reference-mean", "--reference", file.name)
        self.assertIn("replaced by its mean over the reference text", out)

    def test_predictions_side_by_side(self):
        out = self.ok("look", REPEATS, "--ablate", "L3H0,L3H1")
        self.assertIn("Changed: L3H0 (zero), L3H1 (zero).", out)
        row = re.search(r'(?m)^" Rabbit" +(\d+\.\d) % +(\d+\.\d) %$', out)
        self.assertGreater(float(row[1]), float(row[2]))
        self.assertRegex(out, r"(?m)^11 met +\d+\.\d\d +\d+\.\d\d +\+\d+\.\d\d$")
        self.assertIn("Changed: L3H1:17>10 (hide).", self.ok("look", REPEATS, "--ablate", "L3H1:17>10"))

    def test_the_lens_says_when_it_settles(self):
        out = self.words("lens", "The cat sat on the mat. The cat sat on the")
        self.assertRegex(out, r'" mat" is the likeliest from layer \d on\.')
        self.assertIn("the last norm (taken afresh)", out)
        self.assertIn("with the scale that it has in the end", self.words("lens", CLEAN, "--frozen-norm"))
        self.assertIn("through no norm", self.words("lens", CLEAN, "--no-norm"))

    def test_long_texts_say_what_is_left_out(self):
        text = "once upon a time " * 20
        self.assertRegex(self.words("lens", text), r"The last 24 of \d+ tokens\.")
        self.assertRegex(self.words("look", text, "--ablate", "L3H1"),
                         r"The 24 of \d+ tokens whose loss changes most\.")
        self.assertRegex(self.words("patch", text, text.replace("time", "word", 1), "--answer", " Mary",
                                    "--wrong", " John"), r"The 24 of \d+ tokens that bring most back\.")

    def test_a_patch_names_the_differing_token(self):
        out = self.words(*PATCH)
        self.assertIn("3 Mary/John", out)
        self.assertRegex(out, r"The head that matters most is layer \d head \d: .* brings back \d+ % of the "
                              r"difference\.")

    def test_too_little_to_divide_by_is_said(self):
        out = self.words("patch", CLEAN, CLEAN, "--answer", " Mary", "--wrong", " John")
        self.assertIn("These differ by less than 0.1, too little to divide by", out)


class Refused(Effects):
    def test_patch_shows_the_pieces(self):
        self.refuses(1, 'patch: the texts must have equally many tokens, so that each has its counterpart; clean '
                        'has 4: "<|endoftext|>" "Peter" " met" " Mary"; corrupt has 3: "<|endoftext|>" "Peter" '
                        '" met"', "patch", "Peter met Mary", "Peter met", "--answer", " Mary", "--wrong", " John")
        self.refuses(1, 'patch: the answer " Mary Rabbit" must be one token, but it is 2: " Mary" " Rabbit"',
                     "patch", CLEAN, CORRUPT, "--answer", " Mary Rabbit", "--wrong", " John")
        self.refuses(1, "patch: the wrong answer is empty; it must be one token", "patch", CLEAN, CORRUPT,
                     "--answer", " Mary", "--wrong", "")

    def test_parts_and_kinds(self):
        look = ("look", REPEATS)
        self.refuses(2, "--ablate: L9H0: there are layers 0 to 3", *look, "--ablate", "L9H0")
        self.refuses(2, "--ablate: names no part; pass one, as L3H2", *look, "--ablate", "")
        self.refuses(2, "--edges: names no token; pass one, or its index", *look, "--edges", "")
        self.refuses(2, "--with: scale needs its factor, as scale:0.5", *look, "--effects", "--with", "scale")
        self.refuses(2, "--with: mean takes no number; scale does, as scale:0.5", *look, "--effects", "--with",
                     "mean:2")
        self.refuses(2, "--with: patch takes from another text: cephalo patch CLEAN CORRUPT", *look, "--effects",
                     "--with", "patch")
        self.refuses(2, "--with: hide is for looks, not for heads", *look, "--effects", "--with", "hide")
        self.refuses(2, "--with: reference-mean needs --reference FILE, a text to take it over", *look, "--effects",
                     "--with", "reference-mean")
        self.refuses(2, "--with: says how to change parts; which ones say --effects or --ablate", *look, "--with",
                     "mean")
        self.refuses(2, "--layer: shows where heads look; omit it to see effects", *look, "--effects", "--layer",
                     "0")
        self.refuses(2, "--edges: token 0 looks at itself alone", *look, "--edges", "0")
        self.assertIn("--edges: 'Benjamin' is neither a token of the text nor an index",
                      cephalo(*look, "--edges", "Benjamin").stderr)
        self.refuses(2, "--frozen-norm and --no-norm exclude each other", "lens", REPEATS, "--frozen-norm",
                     "--no-norm")

    def test_a_misspelled_flag_gets_a_hint(self):
        self.assertIn("did you mean --effects?", cephalo("look", REPEATS, "--efects").stderr)
        self.assertIn("did you mean lens?", cephalo("lense", REPEATS).stderr)


class Pairs(Effects):
    def test_the_time_is_said_first(self):
        result = cephalo("look", CLEAN, "--pairs")
        self.assertRegex(result.stderr, r"^496 pairs of heads: (less than a second|about \d+ s; Ctrl-C shows what "
                                        r"is done)\n$")
        self.assertIn("The 10 of 496 pairs", " ".join(result.stdout.split()))

    def test_ctrl_c_keeps_what_is_done(self):
        text = "Once upon a time there was a king and a queen. " * 18  # seconds of work
        process = subprocess.Popen([CEPHALO, "look", text, "--pairs", "--threads", "1"], text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertIn("pairs of heads", process.stderr.readline())
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 128 + signal.SIGINT)
        self.assertRegex(" ".join(out.split()), r"Stopped after \d+ of 496 pairs\.")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
