"""cephalo trace as a person and as a script use it."""

import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from xml.etree import ElementTree

CEPHALO = sys.argv[1]
DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"


def cephalo(*arguments, **environment):
    return subprocess.run([CEPHALO, *arguments], capture_output=True, text=True,
                          env={**os.environ, **environment})


def trace_json(*arguments):
    result = cephalo("trace", "--json", *arguments)
    assert result.returncode == 0, result.stderr
    trace = json.loads(result.stdout)
    return trace, {step["key"]: step for step in trace["steps"]}


class Text(unittest.TestCase):
    def test_the_demo_fits_a_terminal(self):
        result = cephalo("trace")
        lines = result.stdout.splitlines()
        self.assertEqual(result.returncode, 0)
        self.assertEqual(result.stderr, "")
        self.assertLessEqual(len(lines), 40)
        self.assertLessEqual(max(map(len, lines)), 80)
        self.assertIn("untrained parameters", lines[1])

    def test_no_escape_codes_reach_a_pipe(self):
        for arguments in ((), ("--explain",), ("--json",), ("--text", "a \x1b[31mb")):
            self.assertNotIn("\x1b", cephalo("trace", *arguments, TERM="xterm-256color").stdout)

    def test_every_rung_by_number_and_by_name(self):
        names = ["simple", "self", "causal", "wrapper", "multi-head", "bidirectional", "fused"]
        for number, name in enumerate(names, 1):
            by_number = cephalo("trace", "--rung", str(number), "--d-in", "24")
            if number in (2, 3, 5):
                by_number = cephalo("trace", "--rung", str(number), "--d-in", "24", "--d-out", "24")
                by_name = cephalo("trace", "--rung", name, "--d-in", "24", "--d-out", "24")
            else:
                by_name = cephalo("trace", "--rung", name, "--d-in", "24")
            self.assertEqual(by_number.returncode, 0, by_number.stderr)
            self.assertEqual(by_number.stdout, by_name.stdout)
            self.assertLessEqual(max(map(len, by_number.stdout.splitlines())), 80, name)

    def test_long_and_short_texts(self):
        long = cephalo("trace", "--text", " ".join(f"word{i}" for i in range(40)))
        self.assertIn("the first 12 of 40 tokens", long.stdout)
        self.assertLessEqual(max(map(len, long.stdout.splitlines())), 80)
        self.assertEqual(cephalo("trace", "--text", "Hello").returncode, 0)
        self.assertEqual(cephalo("trace", "--text", "Hello, wörld!").returncode, 0)

    def test_another_head_shows_other_weights(self):
        self.assertNotEqual(cephalo("trace", "--head", "1").stdout, cephalo("trace").stdout)

    def test_explain_tells_what_why_and_effect_of_every_step(self):
        out = cephalo("trace", "--explain").stdout
        for name in ("INPUT", "PROJECT", "SPLIT", "TRANSPOSE", "SCORES", "MASK", "SCALE", "SOFTMAX",
                     "DROPOUT", "VALUES", "CONCAT", "PROJECT OUT"):
            self.assertIn(f" {name}\n   what    ", out)
        self.assertIn("strides [4608, 64, 768, 1]  same memory", out)
        self.assertIn("mask before the scale", out)
        self.assertLessEqual(max(map(len, out.splitlines())), 80)

    def test_explain_says_nothing_of_hiding_where_nothing_is_hidden(self):
        for rung in ("1", "2", "6", "7"):
            out = cephalo("trace", "--rung", rung, "--d-in", "24", "--explain").stdout
            self.assertIn("nothing is hidden: every query may look at every token", out)
            for wrong in ("-inf", "order: mask", "must not be known"):
                self.assertNotIn(wrong, out, rung)
        self.assertIn("become -inf", cephalo("trace", "--rung", "3", "--explain").stdout)

    def test_a_list_of_heads_is_traced_without_a_split(self):
        for flags in ((), ("--explain",)):
            out = cephalo("trace", "--rung", "4", *flags).stdout
            for step in ("SPLIT", "TRANSPOSE", ".view("):
                self.assertNotIn(step, out)
            self.assertIn("12 of (1, 6, 64)", out)
            self.assertLessEqual(max(map(len, out.splitlines())), 80)

    def test_rung_1_shows_the_books_three_numbers(self):
        out = cephalo("trace", "--rung", "1").stdout
        self.assertIn("Your journey starts with one step", out)
        self.assertIn("no parameters: every number below follows from x", out)
        self.assertNotIn("seed", out)
        _, steps = trace_json("--rung", "1")
        self.assertEqual(steps["x"]["shape"], [1, 6, 3])
        self.assertEqual(steps["x"]["value"][0][1], [0.55, 0.87, 0.66])
        # The book's own weights and context vector of "journey".
        for ours, books in ((steps["weights"], [0.1385, 0.2379, 0.2333, 0.1240, 0.1082, 0.1581]),
                            (steps["context"], [0.4419, 0.6515, 0.5683])):
            self.assertEqual([round(number, 4) for number in ours["value"][0][1]], books)

    def test_rung_1_on_a_text_of_ones_own_is_no_identity_matrix(self):
        trace, steps = trace_json("--rung", "1", "--text", "The cat sat on the mat")
        self.assertEqual(steps["x"]["shape"], [1, 6, 3])
        self.assertEqual(trace["tokens"][1], "cat")
        self.assertLess(min(row[i] for i, row in enumerate(steps["weights"]["value"][0])), 0.99)
        _, wide = trace_json("--rung", "1", "--d-in", "768")
        self.assertEqual(wide["x"]["shape"], [1, 6, 768])

    def test_trained_heads_are_one_command_away(self):
        self.assertIn("trained heads: cephalo look ", cephalo("trace").stdout)

    def test_C5_the_locale_changes_nothing(self):
        self.assertEqual(cephalo("trace", "--dropout", "0.5", "--train", LC_ALL="de_DE.UTF-8").stdout,
                         cephalo("trace", "--dropout", "0.5", "--train").stdout)

    def test_help_and_version(self):
        self.assertEqual(cephalo("--version").stdout, "cephalo 0.1.0\n")
        self.assertIn("Examples:", cephalo("--help").stdout)
        self.assertIn("--dropout-stream", cephalo("trace", "--help").stdout)


class Json(unittest.TestCase):
    def test_steps_have_shapes_values_and_strides(self):
        trace, steps = trace_json()
        self.assertEqual(trace["tokens"], ["The", "cat", "sat", "on", "the", "mat"])
        self.assertFalse(trace["trained"])
        self.assertEqual(steps["weights"]["shape"], [1, 12, 6, 6])
        self.assertEqual(steps["q_heads"]["strides"], [4608, 64, 768, 1])
        self.assertFalse(steps["q_heads"]["moved"])
        for head in steps["weights"]["value"][0]:
            for i, row in enumerate(head):
                self.assertAlmostEqual(sum(row), 1.0, places=5)
                self.assertEqual(row[i + 1:], [0] * (5 - i))
        self.assertIsNone(steps["scores_masked"]["value"][0][0][0][1])

    def test_one_stream_of_numbers_from_the_seed(self):
        _, a = trace_json("--seed", "1")
        _, b = trace_json("--seed", "1")
        _, c = trace_json("--seed", "2")
        self.assertEqual(a["output"]["value"], b["output"]["value"])
        self.assertNotEqual(a["output"]["value"], c["output"]["value"])

    def test_dropout_acts_with_train_only(self):
        _, off = trace_json("--dropout", "0.5")
        _, on = trace_json("--dropout", "0.5", "--train")
        self.assertEqual(off["weights"]["value"], off["weights_dropped"]["value"])
        self.assertEqual(off["weights_dropped"]["note"], "eval mode: nothing dropped")
        self.assertNotEqual(on["weights"]["value"], on["weights_dropped"]["value"])

    def test_parameters_on_request(self):
        trace, _ = trace_json("--d-in", "3", "--d-out", "2", "--num-heads", "2", "--parameters")
        self.assertEqual(list(trace["parameters"]),
                         ["W_query.weight", "W_key.weight", "W_value.weight", "out_proj.weight",
                          "out_proj.bias"])

    def test_presets(self):
        trace, steps = trace_json("--preset", "gpt2-xl")
        self.assertEqual(steps["q_heads"]["shape"], [1, 25, 6, 64])


class Input(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def array(self, name, shape, values):
        header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
        path = self.folder / name
        path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
                         + struct.pack(f"<{len(values)}f", *values))
        return str(path)

    def test_a_batch_of_sequences_is_traced(self):
        numbers = [((7 * n) % 11) / 5 - 1 for n in range(3 * 4 * 8)]
        batch = self.array("batch.npy", (3, 4, 8), numbers)
        flags = ("--d-out", "8", "--num-heads", "2")
        _, steps = trace_json("--input", batch, *flags)
        self.assertEqual(steps["weights"]["shape"], [3, 2, 4, 4])
        # Sequence 1 of the batch is what a file with that sequence alone gives.
        alone = self.array("alone.npy", (4, 8), numbers[32:64])
        _, one = trace_json("--input", alone, *flags)
        self.assertEqual(steps["output"]["value"][1], one["output"]["value"][0])
        shown = cephalo("trace", "--input", batch, "--batch", "1", *flags)
        self.assertIn("\nsequence 1 of 3\n", shown.stdout)
        matrix = cephalo("trace", "--input", alone, *flags).stdout.split("\n\n")[2]
        self.assertIn(matrix, shown.stdout)
        self.assertIn(" --batch 2 ", shown.stdout)
        explained = cephalo("trace", "--input", batch, "--batch", "1", "--explain", *flags).stdout
        self.assertIn("x[1, :4, :4] =", explained)
        self.assertIn("weights[1, 0, :4, :4] =", explained)
        self.assertIn("q_split[1, 0, :2, :4] =", explained)

    def test_what_is_no_sequence_is_refused(self):
        result = cephalo("trace", "--input", self.array("x.npy", (1, 1, 1, 8), [0.0] * 8))
        self.assertEqual(result.returncode, 1)
        self.assertIn("[tokens, d_in] or [batch, tokens, d_in] of floats is needed", result.stderr)
        result = cephalo("trace", "--batch", "1")
        self.assertEqual(result.returncode, 2)
        self.assertEqual(result.stderr, "error: --batch: '1' is not a whole number from 0 to 0\n")


class Picture(unittest.TestCase):
    def test_the_terminal_shows_the_split_of_gpt2(self):
        result = cephalo("trace", "--picture", LC_ALL="C.UTF-8")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        lines = result.stdout.splitlines()
        self.assertEqual(lines[0], "768 = 12 heads x 64")
        self.assertLessEqual(max(map(len, lines)), 80)
        self.assertLessEqual(len(lines), 45)
        for words in ("q.view(1, 6, 12, 64)", "axes 1 and 2 change places",
                      "(1, 12, 6, 64) @ (1, 12, 64, 6) = (1, 12, 6, 6)", "it cancels"):
            self.assertIn(words, result.stdout)

    def test_no_layer_is_made_for_it(self):
        result = cephalo("trace", "--preset", "gpt3", "--picture")
        self.assertIn("12288 = 96 heads x 128\n", result.stdout)
        self.assertLessEqual(max(map(len, result.stdout.splitlines())), 80)

    def test_svg(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "split.svg"
            command = ("trace", "--svg", str(path), "--text", "<Tom> & Jerry")
            result = cephalo(*command)
            self.assertEqual(result.stdout, f"{path}: {path.stat().st_size} bytes\n")
            texts = [e.text for e in ElementTree.parse(path).iter() if e.tag.endswith("text")]
            self.assertIn("<Tom>", texts)
            self.assertEqual(cephalo(*command).returncode, 1)  # it exists
            self.assertEqual(cephalo(*command, "--force").returncode, 0)

    def test_the_tour_has_the_picture_that_is_drawn_today(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "split.svg"
            cephalo("trace", "--svg", str(path))
            self.assertEqual(path.read_text(), (DOCS / "split.svg").read_text(), "run `make docs`")

    def test_only_where_something_is_split(self):
        for arguments, message in (
                (("--rung", "4", "--picture"),
                 "--picture: rung 4 splits nothing into heads; rungs 5 to 8 do"),
                (("--svg", "x.svg", "--json"), "--svg: cannot be combined with --json or --explain"),
                (("--svg", "x.png"), "--svg: writes an SVG file; 'x.png' does not end in .svg")):
            result = cephalo("trace", *arguments)
            self.assertEqual((result.returncode, result.stdout), (2, ""))
            self.assertEqual(result.stderr, f"error: {message}\n")


class Mistakes(unittest.TestCase):
    def test_every_name_of_a_preset_will_do(self):
        one = cephalo("trace", "--preset", "gpt2-small").stdout
        for name in ("gpt2", "124M"):
            self.assertEqual(cephalo("trace", "--preset", name).stdout, one)

    def test_memory_is_said_first_and_too_much_is_refused(self):
        begin = time.monotonic()
        result = cephalo("trace", "--d-in", "16777216", "--d-out", "16777216", "--num-heads", "1")
        self.assertEqual((result.returncode, result.stdout), (1, ""), result.stderr)
        self.assertRegex(result.stderr, r"^error: trace: [\d,]+ random numbers need [\d.]+ GiB, and "
                                        r"only [\d.]+ [GM]iB is available\n$")
        self.assertLess(time.monotonic() - begin, 2.0)
        large = subprocess.Popen([CEPHALO, "trace", "--d-in", "1000000"], stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE, text=True)
        said = large.stderr.readline()
        large.kill()
        large.communicate()
        self.assertRegex(said, r"(drawing|trace:) 3,334,\d{3},\d{3} random numbers(, | need )12.4 GiB")

    def refuses(self, status, message, *arguments):
        result = cephalo(*arguments)
        self.assertEqual(result.returncode, status, arguments)
        self.assertEqual(result.stdout, "")
        self.assertEqual(result.stderr, f"error: {message}\n")

    def test_C1_wrong_usage_is_one_line_and_status_2(self):
        self.refuses(2, "no command given; try: cephalo look \"The cat sat on the mat\"; see "
                        "cephalo --help")
        self.refuses(2, "unknown command 'tarce' (did you mean trace?); see cephalo --help", "tarce")
        self.refuses(2, "unknown flag '--num-head' (did you mean --num-heads?); see cephalo trace "
                        "--help", "trace", "--num-head", "3")
        for words in (("window",), ("window", "--help"), ("--help", "window")):
            result = cephalo(*words)
            self.assertEqual((result.returncode, result.stdout), (2, ""), words)
            self.assertRegex(result.stderr, "^error: unknown command 'window'; the commands are look, page, lens, patch, "
                                            "trace, .*, train, .*; see cephalo --help\n$")
        self.refuses(2, "unknown word 'world'; a text of several words needs quotes: cephalo trace "
                     "\"hello world\"; see cephalo trace --help", "trace", "hello", "world")
        self.refuses(2, "--rung: '9' is not 1 to 8 or one of simple, self, causal, wrapper, "
                        "multi-head, bidirectional, fused, pipeline", "trace", "--rung", "9")
        self.refuses(2, "--num-heads: rung 2 has no such option", "trace", "--rung", "2",
                     "--num-heads", "2")
        self.refuses(2, "--head: '12' is not a whole number from 0 to 11", "trace", "--head", "12")
        self.refuses(2, "--text: has no word in it", "trace", "--text", " ")
        for arguments in (("trace", "--seed"), ("trace", "--seed", "1", "--seed", "2")):
            result = cephalo(*arguments)
            self.assertEqual(result.returncode, 2)
            self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
            self.assertTrue(result.stderr.endswith("; see cephalo trace --help\n"), result.stderr)

    def test_C2_numbers_are_digits_and_nothing_else(self):
        for text in ("12abc", "0x10", " 3", "1e3", "99999999999999999999", "-1", "nan", "", "+3"):
            result = cephalo("trace", f"--num-heads={text}")
            self.assertEqual(result.returncode, 2, text)
            self.assertEqual(result.stdout, "")
            self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        self.refuses(2, "--num-heads: '12abc' is not a whole number from 1 to 16777216", "trace",
                     "--num-heads", "12abc")
        self.refuses(2, "--dropout: '1' is not a number from 0 to below 1", "trace", "--dropout", "1")

    def test_sizes_that_do_not_fit(self):
        self.refuses(2, "MultiHeadAttention: d_out (768) must be divisible by num_heads (11); "
                        "8 or 12 heads fit", "trace", "--num-heads", "11")
        self.refuses(2, "embed_text: tokens (6) exceed context_length (5)", "trace",
                     "--context-length", "5")
        self.refuses(2, "preset: unknown name gpt5; known are gpt2-small, gpt2-medium, gpt2-large, "
                        "gpt2-xl, gpt3-small, gpt3-medium, gpt3-large, gpt3-xl, gpt3-2.7b, gpt3-6.7b, "
                        "gpt3-13b, gpt3", "trace", "--preset", "gpt5")

    def test_flags_without_a_use_are_refused(self):
        self.refuses(2, "--train: rung 2 has no such option", "trace", "--rung", "2", "--train")
        self.refuses(2, "--parameters: only with --json", "trace", "--parameters")

    def test_control_characters_never_reach_the_terminal(self):
        for text in ("1\n2", "\x1b[31m", "\u009b31m"):
            result = cephalo("trace", "--seed", text)
            self.assertEqual(result.returncode, 2)
            self.assertEqual(len(result.stderr.splitlines()), 1)
            self.assertNotRegex(result.stderr, "[\x1b\u0080-\u009f]")

    def test_C4_nobody_listening(self):
        for redirect, status in (("2>&-", 2), (">/dev/full 2>&1", 2)):
            self.assertEqual(subprocess.run(f"{CEPHALO} trace --rung 9 {redirect}",
                                            shell=True).returncode, status)
        for arguments in ("trace", "--help", "trace --help", "--version"):
            result = subprocess.run(f"{CEPHALO} {arguments} >/dev/full", shell=True,
                                    capture_output=True, text=True)
            self.assertEqual(result.returncode, 1)
            self.assertEqual(result.stderr, "error: stdout: the output could not be written\n")

    def test_C4_a_closed_pipe_is_a_quiet_failure(self):
        process = subprocess.Popen([CEPHALO, "trace", "--json"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        process.stdout.close()
        error = process.stderr.read().decode()
        process.stderr.close()
        self.assertEqual(process.wait(), 1)
        self.assertLessEqual(len(error.splitlines()), 1)


if __name__ == "__main__":
    sys.argv = sys.argv[:1]
    unittest.main()
