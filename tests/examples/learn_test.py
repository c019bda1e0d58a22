"""examples/learn.cc learns what it says, and the same each time."""

import re
import subprocess
import sys
import time
import unittest

PROGRAM = sys.argv[1]
SANITIZED = "--sanitized" in sys.argv
LETTERS = 26


def run():
    return subprocess.run([PROGRAM], capture_output=True, text=True, check=True).stdout


class Learn(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        begin = time.monotonic()
        cls.text = run()
        cls.seconds = time.monotonic() - begin

    def lesson(self, name):
        """(step, loss, weight) of its lines, and the drawn map."""
        lines = re.findall(rf"^{name}: step +(\d+)  loss (\S+)  weight (\S+)$", self.text, re.M)
        after = self.text.split(f"{name}: step")[-1].splitlines()[1:]
        return [tuple(map(float, line)) for line in lines], [row[2:] for row in after[:LETTERS]]

    def check(self, name, back):
        lines, drawn = self.lesson(name)
        _, first_loss, first_weight = lines[0]
        step, loss, weight = lines[-1]
        self.assertAlmostEqual(first_loss, 3.258, delta=0.2)  # ln 26: it knows nothing
        self.assertLess(first_weight, 0.3)
        self.assertLess(loss, 0.01)
        self.assertGreater(weight, 0.95)
        self.assertLess(step, 500)
        self.assertEqual([len(row) for row in drawn], list(range(1, LETTERS + 1)))
        dark = sum(drawn[i][i - back] in "%@" for i in range(back, LETTERS))
        self.assertGreater(dark, 0.8 * LETTERS)

    def test_one_layer_copies_and_looks_at_itself(self):
        self.check("copy", 0)

    def test_one_layer_looks_at_the_token_before(self):
        self.check("the token before", 1)

    def test_it_learns_the_same_again(self):
        self.assertEqual(run(), self.text)

    @unittest.skipIf(SANITIZED, "no measure of time")
    def test_it_takes_seconds(self):
        self.assertLess(self.seconds, 10)


if __name__ == "__main__":
    sys.argv = sys.argv[:1]
    unittest.main()
