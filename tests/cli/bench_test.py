"""bench: the table's shape, and shares that a machine can have."""

import json
import re
import subprocess
import sys
import time
import unittest

CEPHALO = sys.argv[1]
SANITIZED = "--sanitized" in sys.argv  # then neither times nor shares mean anything

TITLES = ["arithmetic", "reading", "kernels, and their share of the FMA peak",
          "decoding, and its share of a plain read of the same bytes", "calls"]
LINE = re.compile(r"  \S.*?((?:\s+\d+\.\d (?:GF|GB/s|µs)(?:\s+\d\.\d\d)?)+)")
CELL = re.compile(r"\d+\.\d (?:GF|GB/s|µs)(?:\s+(\d\.\d\d))?")


def bench(*arguments):
    return subprocess.run([CEPHALO, "bench", *arguments], capture_output=True, text=True)


class Bench(unittest.TestCase):
    def ok(self, *arguments):
        start = time.monotonic()
        result = bench("--quick", *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stderr, "")  # nobody looks: no progress
        if not SANITIZED:
            self.assertLess(time.monotonic() - start, 5.0)
        return result.stdout

    def check_share(self, share):
        self.assertGreater(share, 0.0)
        if not SANITIZED:
            self.assertLess(share, 1.2)

    def test_the_table(self):
        lines = self.ok("--threads", "2").splitlines()
        self.assertRegex(lines[0], r"^cephalo \d+\.\d+\.\d+, \w+$")
        self.assertEqual(lines[1].split(), ["1", "thread", "2", "threads"])
        self.assertEqual([line for line in lines[2:] if not line.startswith(" ")], TITLES)
        self.assertEqual(sum("FMA in registers" in line for line in lines), 2)
        shares = 0
        for line in lines[2:]:
            if line in TITLES:
                title = line
                continue
            self.assertRegex(line, LINE)
            cells = CELL.findall(LINE.fullmatch(line).group(1))
            self.assertEqual(len(cells), 2, line)
            self.assertEqual(all(cells), "share" in title, line)
            for share in filter(None, cells):
                shares += 1
                if float(share) > 0.0:  # a rounded one may be 0.00 under a sanitizer
                    self.check_share(float(share))
        self.assertGreaterEqual(shares, 16)

    def test_the_same_as_json(self):
        report = json.loads(self.ok("--threads", "1", "--json"))
        self.assertEqual([section["title"] for section in report["sections"]], TITLES)
        for section in report["sections"]:
            for line in section["lines"]:
                self.assertEqual([value["threads"] for value in line["values"]], [1])
                for value in line["values"]:
                    self.assertGreater(value["value"], 0.0)
                    self.assertEqual("share" in value, "share" in section["title"])
                    if "share" in value:
                        self.check_share(value["share"])

    def test_wrong_flags(self):
        for text in ("0", "-1", "two", "1025"):
            result = bench("--quick", f"--threads={text}")
            self.assertEqual(result.returncode, 2)
            self.assertEqual(result.stdout, "")
            self.assertEqual(result.stderr, f"error: --threads: '{text}' is not a whole number from "
                                            "1 to 1024\n")


if __name__ == "__main__":
    sys.argv = sys.argv[:1]
    unittest.main()
