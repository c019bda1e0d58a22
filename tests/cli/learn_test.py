"""cephalo exercise and cephalo quiz, as a person and as a script use them."""

import os
import pathlib
import pty
import re
import subprocess
import sys
import unittest

CEPHALO = sys.argv[1]
ROOT = pathlib.Path(__file__).resolve().parents[2]
STEPS = ["project", "split", "transpose", "scores", "mask", "softmax", "values", "concat", "output"]


def cephalo(*arguments, stdin="", **environment):
    env = {**os.environ, "LC_ALL": "C.UTF-8", **environment}
    return subprocess.run([CEPHALO, *arguments], capture_output=True, text=True, input=stdin, env=env)


class LearnTest(unittest.TestCase):
    def ok(self, *arguments, **options):
        result = cephalo(*arguments, **options)
        self.assertEqual((result.returncode, result.stderr), (0, ""), arguments)
        return result.stdout

    def refuses(self, message, *arguments, **options):
        result = cephalo(*arguments, **options)
        self.assertEqual(result.returncode, 2, arguments)
        self.assertEqual(result.stderr, f"error: {message}\n")
        return result.stdout


class Exercise(LearnTest):
    def test_the_list_has_every_step_and_where_to_write(self):
        out = self.ok("exercise")
        self.assertEqual(re.findall(r"(?m)^(\w+) +\S.*\n +gives \[", out), STEPS)
        self.assertIn("docs/exercise.ipynb", out)
        self.assertLessEqual(max(map(len, out.splitlines())), 80)

    def test_hints_go_further_and_then_the_solution_is_named(self):
        for step in STEPS:
            seen = []
            for count in (1, 2, 3, 4):
                out = " ".join(self.ok("exercise", step, *["--hint"] * count).split())
                seen.append(len(re.findall(rf"{step}, hint \d of 3: ", out)))
                self.assertEqual("That was the last hint: --solution shows the lines." in out, count >= 3)
            self.assertEqual(seen, [1, 2, 3, 3])

    def test_a_step_alone_is_its_task(self):
        self.assertIn("gives [batch, tokens, num_heads, head_dim] = (2, 5, 3, 4)", self.ok("exercise", "split"))

    def test_solutions_in_cpp_are_those_that_fill_the_example(self):
        path = ROOT / "tests/examples/fill_exercise.py"
        source = path.read_text().split("def main")[0]
        known = {}
        exec(source, known)
        shown = {}
        for step in STEPS:
            out = self.ok("exercise", step, "--solution", "--cpp")
            shown |= dict(re.findall(r"(?m)^  (\w+) = (.*)$", out))
        self.assertEqual(shown, known["SOLUTIONS"])

    def test_solutions_in_python_are_those_that_fill_the_notebook(self):
        source = (ROOT / "tests/python/test_notebooks.py").read_text()
        known = {}
        exec(re.search(r"(?ms)^SOLUTIONS = \{.*?^\}", source).group(), known)
        shown = {}
        for step in STEPS:
            shown |= dict(re.findall(r"(?m)^  (\w+) = (.*)$", self.ok("exercise", step, "--solution")))
        self.assertEqual(shown, known["SOLUTIONS"])

    def test_C1_wrong_usage_is_one_line_and_status_2(self):
        steps = ", ".join(STEPS)
        self.refuses(f"STEP: 'attend' is not one of {steps}", "exercise", "attend", "--hint")
        self.refuses("--hint: which step? cephalo exercise lists them", "exercise", "--hint")
        self.refuses("--cpp: only with --solution", "exercise", "split", "--cpp")
        self.refuses("--hint: --solution is also given; use only one of them", "exercise", "split", "--hint",
                     "--solution")


class Quiz(LearnTest):
    def right_letters(self, *flags):
        """By asking: every question with every letter."""
        letters = [""] * 10
        for letter in "abcd":
            for number in range(10):
                answers = ["a"] * number + [letter]
                result = cephalo("quiz", *flags, stdin="\n".join(answers) + "\n")
                if re.search(rf"(?s)\n{number + 1} of 10, .*\n{letter}\) Right\. ", "\n" + result.stdout):
                    letters[number] = letter
        return letters

    def test_answers_come_from_stdin_and_are_counted(self):
        letters = self.right_letters()
        self.assertNotIn("", letters)
        out = self.ok("quiz", stdin="\n".join(letters) + "\n")
        self.assertEqual(out.count(") Right. "), 10)
        self.assertIn("\n10 of 10 right.", out)
        wrong = ["b" if letter == "a" else "a" for letter in letters]
        out = self.ok("quiz", stdin="\n".join(wrong) + "\n")
        self.assertEqual(len(re.findall(r"(?m)^[ab]\) No\. ", out)), 10)
        self.assertIn("\n0 of 10 right.", out)

    def test_a_wrong_answer_gets_the_numbers(self):
        out = " ".join(self.ok("quiz", stdin="a\n" * 10).split())
        said = re.findall(r"[abcd]\) No\. \S.*? Right is [abcd]\), (.*?)(?= \d+ of 10,|$)", out)
        self.assertGreaterEqual(len(said), 5)
        for text in said:
            self.assertRegex(text, r"\. .*\d.*\.")

    def test_answers_may_end_early(self):
        self.assertIn(" of 2 right, 8 not answered. ", self.ok("quiz", stdin="a\nB)\n"))
        self.assertIn("0 of 0 right, 10 not answered.", self.ok("quiz"))

    def test_seeds_differ_and_repeat(self):
        self.assertEqual(self.ok("quiz", "--list"), self.ok("quiz", "--list", "--seed", "123"))
        self.assertNotEqual(self.ok("quiz", "--list"), self.ok("quiz", "--list", "--seed", "124"))
        self.assertEqual(len(re.findall(r"(?m)^\d+ of 10, ", self.ok("quiz", "--list"))), 10)
        self.assertNotIn("Right", self.ok("quiz", "--list"))

    def test_C1_an_answer_that_is_no_letter_is_named(self):
        self.refuses("answer 2: quiz: 'x' is not one of the letters a to d", "quiz", stdin="a\nx\n")

    def test_a_person_is_prompted_and_may_try_again(self):
        master, slave = pty.openpty()
        process = subprocess.Popen([CEPHALO, "quiz"], stdin=slave, stdout=subprocess.PIPE, text=True)
        os.close(slave)
        os.write(master, b"x\na\n\x04")
        out, _ = process.communicate(timeout=60)
        os.close(master)
        self.assertEqual(process.returncode, 0)
        self.assertIn("> quiz: 'x' is not one of the letters a to d\n> a) ", out)
        self.assertIn(" of 1 right, 9 not answered", out)

    def test_lines_fit_a_terminal(self):
        for width in ("60", "80"):
            out = self.ok("quiz", stdin="b\n" * 10, COLUMNS=width)
            self.assertLessEqual(max(map(len, out.splitlines())), int(width))


if __name__ == "__main__":
    sys.argv = sys.argv[:1]
    unittest.main()
