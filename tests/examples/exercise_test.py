"""examples/exercise.cc says what to do; filled in it is right to the end; a slip is named."""

import subprocess
import sys
import unittest

SHIPPED, SOLVED, WRONG = sys.argv[1:4]


def run(program):
    return subprocess.run([program], capture_output=True, text=True)


class Exercise(unittest.TestCase):
    def test_as_shipped_it_says_what_to_do_first(self):
        done = run(SHIPPED)
        self.assertEqual(done.returncode, 0)
        self.assertIn("project: to do: q = x times W_query transposed", done.stdout)
        self.assertNotIn("right", done.stdout)

    def test_the_solutions_are_right_in_every_step(self):
        done = run(SOLVED)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(done.stdout.count(": right, "), 9)
        self.assertIn("That was the last step.", done.stdout)

    def test_a_forgotten_scale_is_named_and_stops_it(self):
        done = run(WRONG)
        self.assertEqual(done.returncode, 1)
        self.assertIn("softmax: the scale was forgotten", done.stdout)
        self.assertNotIn("values", done.stdout.split("softmax: ")[1])


if __name__ == "__main__":
    sys.argv = sys.argv[:1]
    unittest.main()
