"""Under mpirun, in a build without MPI: what a launcher says in the environment is enough to tell."""

import os
import subprocess
import sys
import tempfile
import unittest

CEPHALO = sys.argv[1]


def run(rank, size, *words):
    launcher = {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": str(size)}
    return subprocess.run([CEPHALO, *words], capture_output=True, text=True, timeout=60,
                          env={**os.environ, **launcher})


class WithoutMpi(unittest.TestCase):
    def test_training_is_an_error_that_says_how_to_build(self):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as text:
            text.write("The cat sat on the mat. " * 200)
            text.flush()
            result = run(0, 4, "train", text.name, "--out", text.name + "-model")
            self.assertEqual(result.returncode, 1)
            self.assertEqual(result.stderr, "error: mpirun started 4 processes, but this cephalo was built "
                             "without MPI; build it with -DCEPHALO_MPI=ON (tools/deps mpi installs what that "
                             "needs)\n")
            self.assertFalse(os.path.exists(text.name + "-model"))
            others = run(3, 4, "train", text.name)
            self.assertEqual((others.returncode, others.stdout, others.stderr), (1, "", ""))

    def test_other_verbs_work_in_one_process(self):
        result = run(0, 2, "trace")
        self.assertEqual(result.returncode, 2)
        self.assertIn("mpirun started 2 processes, but trace works in one", result.stderr)

    def test_one_process_is_as_good_as_none(self):
        self.assertEqual(run(0, 1, "presets").returncode, 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
