"""cephalo tour: its tables show what docs/tour.md says of them."""

import os
import re
import subprocess
import sys
import unittest

CEPHALO = sys.argv[1]
STOPS = ["strides", "matrices", "scale", "mask", "heads", "split", "classes", "buffers"]


def cephalo(*arguments):
    return subprocess.run([CEPHALO, *arguments], capture_output=True, text=True,
                          env={**os.environ, "LC_ALL": "C.UTF-8"})


def table(name):
    result = cephalo("tour", name)
    assert result.returncode == 0 and result.stderr == "", result.stderr
    return result.stdout


class Tour(unittest.TestCase):
    def test_it_lists_its_stops_and_each_leads_to_the_next(self):
        out = cephalo("tour").stdout
        for name in STOPS:
            self.assertIn(f"  cephalo tour {name} ", out)
        for name, following in zip(STOPS, STOPS[1:]):
            self.assertTrue(table(name).endswith(f"\nnext: cephalo tour {following}\n"), name)
        self.assertIn("next: cephalo look ", table(STOPS[-1]))

    def test_everything_fits_a_terminal(self):
        for arguments in (("tour",), *(("tour", name) for name in STOPS)):
            lines = cephalo(*arguments).stdout.splitlines()
            # The library's message is shown as it is: one line.
            wide = [line for line in lines if len(line) > 80 and "cannot be seen as" not in line]
            self.assertEqual(wide, [])

    def test_without_the_scale_softmax_loses_its_slope_as_heads_get_wider(self):
        rows = re.findall(r"^ +\d+ \|.*$", table("scale"), re.MULTILINE)
        numbers = [[float(n) for n in re.findall(r"\d\.\d+", row)] for row in rows]
        self.assertEqual(len(numbers), 4)
        unscaled_top, scaled_top, unscaled, scaled = zip(*numbers)
        self.assertEqual(sorted(unscaled, reverse=True), list(unscaled))
        self.assertEqual(sorted(unscaled_top), list(unscaled_top))
        self.assertLess(unscaled[-1], 0.2)
        for wide in range(4):
            self.assertGreater(scaled[wide], 0.95)
            self.assertGreater(scaled[wide], unscaled[wide])
            self.assertLess(scaled_top[wide], unscaled_top[wide])

    def test_a_list_of_heads_and_one_split_projection_give_the_same(self):
        out = table("split")
        self.assertIn("largest difference of the outputs: 0\n", out)
        self.assertEqual(len(re.findall(r"^ +\d+  [\d.]+ ms +[\d.]+ ms$", out, re.MULTILINE)), 3)

    def test_both_classes_are_shown_side_by_side_and_give_the_same(self):
        out = table("classes")
        self.assertRegex(out, r"PROJECT +q = q_linear\(x\) +q = qkv_proj\(x\)\.chunk\(3\)\[0\]")
        self.assertRegex(out, r"EasyMultiHeadAttention +FastMultiHeadAttention")
        self.assertIn("largest difference of the outputs: 0\n", out)
        times = dict(re.findall(r"^(reference|fused|prepared) +([\d.]+) ms", out, re.MULTILINE))
        self.assertGreater(float(times["reference"]), float(times["prepared"]))

    def test_what_is_not_on_it_is_refused(self):
        result = cephalo("tour", "Paris")
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertEqual(result.stderr, "error: NAME: 'Paris' is not one of "
                                        f"{', '.join(STOPS)}\n")


if __name__ == "__main__":
    sys.argv = sys.argv[:1]
    unittest.main()
