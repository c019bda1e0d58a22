"""cephalo trace as a person and as a script use it."""

import json
import os
import subprocess
import sys
import time
import unittest

CEPHALO = sys.argv[1]


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


class Mistakes(unittest.TestCase):
    def test_every_name_of_a_preset_will_do(self):
        one = cephalo("trace", "--preset", "gpt2-small").stdout
        for name in ("gpt2", "124M"):
            self.assertEqual(cephalo("trace", "--preset", name).stdout, one)

    def test_memory_is_said_first_and_too_much_is_refused(self):
        begin = time.monotonic()
        result = cephalo("trace", "--d-in", "16777216", "--d-out", "16777216", "--num-heads", "1")
        self.assertEqual((result.returncode, result.stdout), (1, ""), result.stderr)
        self.assertRegex(result.stderr, r"^error: trace: [\d,]+ random numbers need [\d.]+ GiB, this "
                                        r"machine has [\d.]+ [GM]iB to give\n$")
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
        self.refuses(2, "say what to do, for example: cephalo look \"The cat sat on the mat\"; see "
                        "cephalo --help")
        self.refuses(2, "unknown command 'tarce' (did you mean trace?); see cephalo --help", "tarce")
        self.refuses(2, "unknown flag '--num-head' (did you mean --num-heads?); see cephalo trace "
                        "--help", "trace", "--num-head", "3")
        for words in (("page",), ("page", "--help"), ("--help", "page")):
            result = cephalo(*words)
            self.assertEqual((result.returncode, result.stdout), (2, ""), words)
            self.assertRegex(result.stderr, "^error: unknown command 'page'; there are look, trace, "
                                            ".*, presets; see cephalo --help\n$")
        self.refuses(2, "unknown word 'hello'; see cephalo trace --help", "trace", "hello")
        self.refuses(2, "--rung: '9' is not 1 to 8 or one of simple, self, causal, wrapper, "
                        "multi-head, bidirectional, fused, pipeline", "trace", "--rung", "9")
        self.refuses(2, "--num-heads: rung 2 has no such option", "trace", "--rung", "2",
                     "--num-heads", "2")
        self.refuses(2, "--head: '12' is not a whole number from 0 to 11", "trace", "--head", "12")
        self.refuses(2, "--text: there is no word in it", "trace", "--text", " ")
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
        self.refuses(2, "preset: there is no gpt5; there are gpt2-small, gpt2-medium, gpt2-large, "
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
