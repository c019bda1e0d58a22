"""The program goes on with a run that an earlier version began: tests/golden/written_by_0.1."""

import csv
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

CEPHALO = sys.argv[1]
WRITTEN = pathlib.Path(__file__).resolve().parents[1] / "golden" / "written_by_0.1"


class Written(unittest.TestCase):
    def test_an_interrupted_run_is_resumed_to_its_end(self):
        expected = json.loads((WRITTEN / "expected.json").read_text())
        with tempfile.TemporaryDirectory() as holder:
            run = pathlib.Path(holder) / "run"
            shutil.copytree(WRITTEN / "run", run, symlinks=True)
            result = subprocess.run([CEPHALO, "train", "-o", run, "--resume"], capture_output=True,
                                    text=True)
            self.assertEqual(result.returncode, 0, result.stderr)
            with open(run / "loss.csv", newline="") as file:
                losses = [float(row["loss"]) for row in csv.DictReader(file)]
        self.assertEqual(len(losses), 300)
        step = expected["step"]
        for found, loss in zip(losses[step:step + 3], expected["losses_after"], strict=True):
            self.assertAlmostEqual(found, loss, delta=1e-5)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
