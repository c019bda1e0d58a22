"""A corpus of 1 GB trains in 256 MiB beyond what the model is said to take."""

import os
import pathlib
import random
import re
import resource
import string
import subprocess
import sys
import tempfile
import unittest

CEPHALO = sys.argv[1]
GIB = 1 << 30
UNITS = {"MiB": 1 << 20, "GiB": 1 << 30}


def write_corpus(path):
    """Words of a small vocabulary and, as in real text, ever new ones."""
    draw = random.Random(1)
    known = ["".join(draw.choices(string.ascii_lowercase, k=draw.randint(2, 9))) for _ in range(30000)]
    block = [" ".join(draw.choices(known, k=200_000)).encode() for _ in range(8)]
    with open(path, "wb") as file:
        while file.tell() < GIB:
            new = " ".join("".join(draw.choices(string.ascii_lowercase, k=8)) for _ in range(10_000))
            file.write(draw.choice(block) + b"\n" + new.encode() + b"\n")


class Memory(unittest.TestCase):
    def test_a_gigabyte_of_text(self):
        with tempfile.TemporaryDirectory() as folder:
            text = pathlib.Path(folder) / "text.txt"
            write_corpus(text)
            result = subprocess.run([CEPHALO, "train", text, "--out", f"{folder}/model", "--steps", "5"],
                                    capture_output=True, text=True)
            self.assertEqual(result.returncode, 0, result.stderr)
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        size, unit = re.search(r"^memory +([\d.]+) (\w+):", result.stdout, re.MULTILINE).groups()
        model = float(size) * UNITS[unit]
        line = f"1 GB of text: peak {peak >> 20} MiB, the model is said to take {int(model) >> 20} MiB"
        print(line)
        if "CEPHALO_REPORT" in os.environ:
            with open(os.environ["CEPHALO_REPORT"], "a") as file:
                file.write(line + "\n")
        self.assertLessEqual(peak, model + 256 * UNITS["MiB"])


if __name__ == "__main__":
    sys.argv = sys.argv[:1]
    unittest.main()
