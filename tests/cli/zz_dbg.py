"""cephalo train under mpirun: the same bits from any number of processes, and what happens when one is
killed, stopped or different. Arguments: the program, mpirun, and --kills N."""

import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

CEPHALO, MPIRUN = sys.argv[1:3]
KILLS = int(sys.argv[sys.argv.index("--kills") + 1]) if "--kills" in sys.argv else 4
NAMES = [word for word in sys.argv[3:] if word.startswith(("SameBits", "Wrong"))]

TINY = ["--d-model", 16, "--num-layers", 2, "--num-heads", 2, "--context-length", 16, "--batch", 16,
        "--vocab-size", 300, "--dropout", 0.1, "--sample-every", 20, "--report-every", 1, "--threads", 1]
STEP = re.compile(r"^step +(\d+)/\d+  loss", re.MULTILINE)


def some_text(words):
    draw = random.Random(1)
    nouns = "cat dog mat sun moon tree river stone bird fish king queen".split()
    verbs = "saw heard found lost loved took made kept".split()
    return " ".join(f"The {draw.choice(nouns)} {draw.choice(verbs)} the {draw.choice(nouns)}."
                    for _ in range(words))


def children(pid):
    """The processes that mpirun started, by rank."""
    found = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[1]) == pid:
                environment = (path.parent / "environ").read_bytes().split(b"\0")
                rank = [e for e in environment if e.startswith(b"OMPI_COMM_WORLD_RANK=")]
                found[int(rank[0].partition(b"=")[2])] = int(path.parent.name)
        except (OSError, IndexError):
            continue
    return found


class InFolder(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        self.text = self.folder / "text.txt"
        self.text.write_text(some_text(800))

    def words(self, out, *more, steps=50):
        return list(map(str, [CEPHALO, "train", self.text, "--out", self.folder / out, "--steps", steps,
                              *TINY, *more]))

    def start(self, processes, *words):
        before = [MPIRUN, "-n", str(processes)] if processes > 0 else []
        process = subprocess.Popen(before + list(words), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True)
        self.addCleanup(lambda: (process.poll() is None and process.kill(), process.communicate()))
        return process

    def train(self, processes, out, *more, steps=50):
        """0 processes: without mpirun."""
        process = self.start(processes, *self.words(out, *more, steps=steps))
        stdout, stderr = process.communicate(timeout=180)
        self.assertEqual(process.returncode, 0, stderr + stdout)
        return stdout

    def ends_badly(self, process):
        """-> the lines that are ours"""
        _, stderr = process.communicate(timeout=60)
        self.assertNotEqual(process.returncode, 0)
        return [line for line in stderr.splitlines() if line.startswith("error: ")]

    def until_step(self, process, step):
        for line in process.stdout:
            done = STEP.match(line)
            if done and int(done[1]) >= step:
                return
        self.fail(process.stderr.read())

    def result(self, out):
        """Every number that a run leaves, to the last bit."""
        folder = self.folder / out
        newest = sorted((folder / "checkpoints").glob("step-*.safetensors"))[-1]
        return {name: path.read_bytes() for name, path in
                {"checkpoint": newest, **{n: folder / n for n in ("loss.csv", "model.safetensors")}}.items()}

    def same_result(self, a, b):
        for name, number in self.result(a).items():
            self.assertEqual(number, self.result(b)[name], name)


class SameBits(InFolder):
    def test_any_number_of_processes(self):
        one = self.train(0, "one")
        for processes in (1, 2, 3, 4, 8):
            out = self.train(processes, f"of{processes}")
            self.same_result(f"of{processes}", "one")
            self.assertEqual(len(STEP.findall(out)), len(STEP.findall(one)))
        self.assertIn("8 processes x 1 threads", out)

    def test_a_signal_to_one_process_stops_all_and_others_continue(self):
        self.train(0, "one")
        for k, processes in enumerate((3, 2)):
            process = self.start(processes, *self.words("many", "--resume"))
            self.until_step(process, 10 + 15 * k)
            os.kill(children(process.pid)[processes - 1], signal.SIGTERM)
            stdout, stderr = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 143, stderr)
            self.assertIn("stopped: ", stdout)
            self.assertEqual(len(sorted((self.folder / "many/checkpoints").glob("step-*"))), 2)
        self.assertIn("resumes at step", self.train(4, "many", "--resume"))
        self.same_result("many", "one")

    def test_kills_of_any_process_at_any_instant(self):
        """Each is resumed on another number; at last the bits are those of the unbroken run."""
        import os as _o; draw = random.Random(int(_o.environ.get('SEED','7')))
        self.train(0, "one", "--save-every", 3)
        killed = 0
        while killed < KILLS:
            processes = draw.choice((2, 3, 4))
            process = self.start(processes, *self.words("many", "--resume", "--save-every", 3))
            if draw.random() < 0.8:
                try:
                    self.until_step(process, 0)
                except AssertionError:
                    pass  # it was at its end already
            time.sleep(draw.random() * 0.4)
            ranks = children(process.pid)
            if ranks and process.poll() is None:
                os.kill(draw.choice(sorted(ranks.values())), signal.SIGKILL)
                try:
                    _, stderr = process.communicate(timeout=30)
                except subprocess.TimeoutExpired:
                    print("HANG", killed, processes, ranks, flush=True)
                    print(subprocess.run("ps axo pid,ppid,stat,wchan:24,etimes,cmd | grep -v grep | grep 'mpiexec\|cephalo'; for p in $(pgrep mpiexec; pgrep -x cephalo); do echo == $p; cat /proc/$p/status | grep 'State\|SigCgt\|SigPnd\|ShdPnd\|SigBlk'; ls -l /proc/$p/fd | tail -20; timeout 20 gdb -p $p -batch -ex 'thread apply all bt 12' 2>/dev/null | grep '^#\|^Thread' | head -60; done", shell=True, capture_output=True, text=True).stdout, flush=True)
                    raise
                if process.returncode != 0:
                    self.assertIn("signal 9", stderr)
                    killed += 1
            else:
                process.communicate(timeout=60)
            if process.returncode == 0:  # it was done: once more from the beginning
                self.same_result("many", "one")
                subprocess.run(["rm", "-r", self.folder / "many"], check=True)
        self.train(draw.choice((0, 2, 3)), "many", "--resume", "--save-every", 3)
        self.same_result("many", "one")


class Wrong(InFolder):
    def test_a_process_that_is_called_otherwise(self):
        other = self.words("many", "--seed", 5)
        errors = self.ends_badly(self.start(1, *self.words("many"), ":", "-n", "1", *other))
        self.assertEqual(len(errors), 1, errors)
        self.assertIn("World: the command of process 1 is", errors[0])
        self.assertIn("--seed 5", errors[0])

    def test_a_process_of_another_instruction_set(self):
        words = self.words("many")
        process = self.start(1, "env", "CEPHALO_ISA=avx2", *words, ":", "-n", "1", "env",
                             "CEPHALO_ISA=scalar", *words)
        self.assertEqual(self.ends_badly(process), [
            "error: World: the instruction set of process 1 is scalar, that of process 0 is avx2"])

    def test_a_process_that_is_stopped(self):
        process = self.start(2, *self.words("many", "--timeout", 2, steps=100000))
        self.until_step(process, 3)
        os.kill(children(process.pid)[1], signal.SIGSTOP)
        errors = self.ends_badly(process)
        self.assertEqual(len(errors), 1, errors)
        self.assertIn("process 1 has not answered for 2 s", errors[0])
        self.assertIn("--timeout", errors[0])

    def test_more_processes_than_shards(self):
        errors = self.ends_badly(self.start(3, *self.words("many", "--shards", 2)))
        self.assertEqual(errors, ["error: mpirun started 3 processes, but a run of 2 shards has work for at "
                                  "most 2; --shards and --batch decide that for a new run"])

    def test_wrong_usage_is_said_once(self):
        errors = self.ends_badly(self.start(2, *self.words("many", "--threads", "x")))
        self.assertEqual(len(errors), 1, errors)

    def test_an_error_of_process_0_ends_all(self):
        (self.folder / "many").write_text("not a folder")
        errors = self.ends_badly(self.start(3, *self.words("many")))
        self.assertEqual(len(errors), 1, errors)

    def test_verbs_that_work_in_one_process(self):
        errors = self.ends_badly(self.start(2, CEPHALO, "trace"))
        self.assertEqual(errors, ["error: mpirun started 2 processes, but trace works in one"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + NAMES)
