"""cephalo train, and rows R1 to R7 of the list of faults as a person meets them: signals, kills, full
disks, damaged files. The number of kills is 12, or the last argument."""

import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

CEPHALO = sys.argv[1]
SANITIZED = "--sanitized" in sys.argv
KILLS = int(sys.argv[sys.argv.index("--kills") + 1]) if "--kills" in sys.argv else 12
SLOWER = 10 if SANITIZED else 1

TINY = {"--d-model": 16, "--num-layers": 1, "--num-heads": 2, "--context-length": 16, "--batch": 2,
        "--vocab-size": 300, "--dropout": 0.1, "--sample-every": 0, "--save-every": 1,
        "--report-every": 1}


def some_text(words):
    draw = random.Random(1)
    nouns = "cat dog mat sun moon tree river stone bird fish king queen".split()
    verbs = "saw heard found lost loved took made kept".split()
    return " ".join(f"The {draw.choice(nouns)} {draw.choice(verbs)} the {draw.choice(nouns)}."
                    for _ in range(words))


class InFolder(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        self.text = self.folder / "text.txt"
        self.text.write_text(some_text(800))

    def command(self, out, *more, steps=20):
        words = [CEPHALO, "train", self.text, "--out", self.folder / out, "--steps", steps, *more]
        for flag, value in TINY.items():
            words += [] if flag in more else [flag, value]
        return list(map(str, words))

    def train(self, out, *more, steps=20, status=0, **how):
        result = subprocess.run(self.command(out, *more, steps=steps), capture_output=True, text=True,
                                timeout=120, **how)
        self.assertEqual(result.returncode, status, result.stderr + result.stdout)
        return result

    def error(self, out, *more, status=1, **how):
        result = self.train(out, *more, status=status, **how)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        self.assertTrue(result.stderr.startswith("error: "), result.stderr)
        return result.stderr[len("error: "):-1]

    def checkpoints(self, out):
        return sorted((self.folder / out / "checkpoints").glob("step-*.safetensors"))

    def files(self, out):
        return sorted(str(p.relative_to(self.folder / out))
                      for p in (self.folder / out).rglob("*") if not p.is_dir())

    def same_result(self, a, b):
        """Every number that a run leaves, to the last bit."""
        for name in ("loss.csv", "model.safetensors", "config.json", "vocab.json"):
            self.assertEqual((self.folder / a / name).read_bytes(),
                             (self.folder / b / name).read_bytes(), name)
        self.assertEqual(self.checkpoints(a)[-1].read_bytes(), self.checkpoints(b)[-1].read_bytes())

    def run_until(self, out, step, steps=20000):
        """A run that has printed this step, and goes on."""
        process = subprocess.Popen(self.command(out, steps=steps), stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (process.poll() is None and process.kill(), process.communicate()))
        for line in process.stdout:
            done = re.match(r"step +(\d+)/\d+  loss", line)
            if done and int(done[1]) >= step:
                return process
        self.fail("the run ended before " + process.stderr.read())


class Train(InFolder):
    def test_leaves_a_model_that_others_read(self):
        result = self.train("model", "--prompt", "The cat", "--sample-every", "10")
        for word in ("parameters", "vocabulary   300 tokens", "memory", "time         about",
                     "step 20/20  loss", "validation loss", "  | The cat"):
            self.assertIn(word, result.stdout)
        self.assertEqual(self.files("model"), [
            "checkpoints/best-00000020.safetensors", "checkpoints/latest",
            "checkpoints/step-00000019.safetensors", "checkpoints/step-00000020.safetensors",
            "config.json", "lock", "loss.csv", "loss.svg",
            "merges.txt", "model.safetensors", "tokens.bin", "vocab.json"])
        out = self.folder / "model"
        self.assertEqual(json.loads((out / "config.json").read_text())["n_embd"], 16)
        self.assertTrue(json.loads((out / "config.json").read_text())["add_bos_token"])
        lines = (out / "loss.csv").read_text().splitlines()
        self.assertEqual(lines[0],
                         "step,loss,learning_rate,gradient_norm,skipped,validation_loss")
        losses = [float(line.split(",")[1]) for line in lines[1:]]
        self.assertEqual(len(losses), 20)
        self.assertLess(losses[-1], losses[0])
        self.assertIn("<svg", (out / "loss.svg").read_text())

    def test_chooses_sizes_and_says_them(self):
        out = self.folder / "m"
        result = subprocess.run([CEPHALO, "train", self.text, "--steps", "2", "--out", out],
                                capture_output=True, text=True, timeout=120)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"model +2 layers x 4 heads, d_model 64, context_length 64")

    def test_samples_change_nothing(self):
        self.train("a", steps=8)
        self.train("b", "--sample-every", "1", "--threads", "1", steps=8)
        for name in ("loss.csv", "model.safetensors"):
            self.assertEqual((self.folder / "a" / name).read_bytes(),
                             (self.folder / "b" / name).read_bytes())

    def test_bf16_export_is_half_the_size(self):
        self.train("wide", steps=2)
        self.train("narrow", "--bf16-export", steps=2)
        wide = (self.folder / "wide/model.safetensors").stat().st_size
        narrow = (self.folder / "narrow/model.safetensors").stat().st_size
        self.assertLess(narrow, 0.7 * wide)

    def test_wrong_usage(self):
        def usage(*words):
            result = subprocess.run([CEPHALO, "train", *map(str, words)], capture_output=True, text=True,
                                    timeout=20)
            self.assertEqual((result.returncode, result.stdout), (2, ""), result.stderr)
            return result.stderr
        self.assertIn("no text given; try: cephalo train FILE", usage())
        self.assertIn("--resume needs --out", usage("--resume"))
        self.assertIn("--previous needs --resume", usage(self.text, "--previous"))
        self.assertIn("--steps: '1e3' is not", usage(self.text, "--steps", "1e3", "--out",
                                                     self.folder / "x"))
        self.assertFalse((self.folder / "x").exists())
        self.assertIn("did you mean --num-layers?", usage(self.text, "--num-layer", "2"))

    def test_bad_input(self):
        result = subprocess.run([CEPHALO, "train", self.folder / "none.txt", "--out",
                                 self.folder / "x"], capture_output=True, text=True)
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertEqual(result.stderr,
                         f"error: {self.folder}/none.txt: No such file or directory\n")
        self.assertFalse((self.folder / "x").exists())
        for text, message in (("", "is empty; there is nothing to learn from"),
                              ("too short", "has 9 bytes, a row needs 17 tokens; more text or a "
                                            "shorter --context-length helps")):
            self.text.write_text(text)
            self.assertEqual(self.error("x"), f"{self.text}: {message}")
            self.assertFalse((self.folder / "x").exists())
        self.text.write_text("too short " * 3)
        self.assertIn("tokens for training, a row needs 17", self.error("x"))


class Export(InFolder):
    """A text of thirty sentences is soon known by heart: the validation loss falls, then rises."""

    FLAGS = ("--d-model", "64", "--num-heads", "4", "--dropout", "0", "--learning-rate", "0.01",
             "--batch", "8", "--repeat-share", "0", "--validation-share", "0.3", "--save-every", "7")
    STEPS = 60

    def setUp(self):
        super().setUp()
        self.text.write_text(some_text(60))

    def validation(self, out):
        """step -> loss"""
        lines = (self.folder / out / "loss.csv").read_text().splitlines()[1:]
        rows = [line.split(",") for line in lines]
        return {int(row[0]): float(row[5]) for row in rows if row[5]}

    def embedding(self, path):
        """The bytes of the token embedding, which every file has in the same layout."""
        data = path.read_bytes()
        begin = 8 + int.from_bytes(data[:8], "little")
        first, last = json.loads(data[8:begin])["transformer.wte.weight"]["data_offsets"]
        return data[begin + first:begin + last]

    def test_the_exported_model_is_the_one_that_validated_best(self):
        result = self.train("a", *self.FLAGS, steps=self.STEPS)
        losses = self.validation("a")
        best = min(losses, key=losses.get)
        self.assertLess(losses[best], losses[self.STEPS] - 0.02, losses)
        folder = self.folder / "a"
        exported = self.embedding(folder / "model.safetensors")
        last = self.embedding(folder / "checkpoints/latest")
        self.assertEqual(exported, self.embedding(folder / f"checkpoints/best-{best:08}.safetensors"))
        self.assertNotEqual(exported, last)
        self.assertEqual(os.readlink(folder / "checkpoints/latest"),
                         f"step-{self.STEPS:08}.safetensors")
        self.assertEqual([p.name for p in (folder / "checkpoints").glob("best-*")],
                         [f"best-{best:08}.safetensors"])
        self.assertEqual(result.stdout.count("warning: the validation loss is"), 1, result.stdout)
        self.assertIn(f"the model of step {best} of {self.STEPS}, validation loss {losses[best]:.3f};",
                      result.stdout)
        self.assertIn(f'next: cephalo generate "Once upon a time" --model {folder}\n', result.stdout)
        # The same run, and the other model; first while it goes, then afterwards.
        self.train("b", *self.FLAGS, "--export", "last", steps=self.STEPS)
        self.assertEqual(self.embedding(self.folder / "b/model.safetensors"), last)
        other = self.train("a", "--resume", "--export", "last", *self.FLAGS, steps=self.STEPS)
        self.assertEqual(self.embedding(folder / "model.safetensors"), last)
        self.assertNotIn("warning", other.stdout)
        self.train("b", "--resume", "--export", "best", *self.FLAGS, steps=self.STEPS)
        self.assertEqual(self.embedding(self.folder / "b/model.safetensors"), exported)

    def test_an_interrupted_run_exports_the_same_model(self):
        self.train("whole", *self.FLAGS, steps=self.STEPS)
        command = self.command("cut", "--resume", *self.FLAGS, steps=self.STEPS)
        for step in (5, 20, 33):
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                       text=True)
            for line in process.stdout:
                done = re.match(r"step +(\d+)/\d+  loss", line)
                if done and int(done[1]) >= step:
                    break
            process.kill()
            process.communicate()
        self.train("cut", "--resume", *self.FLAGS, steps=self.STEPS)
        self.same_result("whole", "cut")

    def test_wrong_words(self):
        result = self.train("a", "--export", "newest", status=2)
        self.assertEqual(result.stderr, "error: --export: 'newest' is not one of best, last\n")
        self.assertFalse((self.folder / "a").exists())


class Interrupted(InFolder):
    def test_R1_a_signal_finishes_the_step_and_saves(self):
        self.train("whole", steps=40)
        for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            out = f"cut-{status}"
            process = self.run_until(out, 3, steps=40)
            process.send_signal(number)
            rest, _ = process.communicate(timeout=60)
            if process.returncode != 0:  # it may have been through already
                self.assertEqual(process.returncode, status)
                self.assertIn(f"cephalo train --resume --out {self.folder / out} continues", rest)
                done = int(re.search(r"has step (\d+) of 40", rest)[1])
                self.assertEqual(self.checkpoints(out)[-1].name, f"step-{done:08}.safetensors")
            self.train(out, "--resume", steps=40)
            self.same_result("whole", out)

    def test_R1_two_signals_end_it_at_once(self):
        process = self.run_until("cut", 3)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)
        self.assertIn(process.returncode, (130, 143))
        result = self.train("cut", "--resume", steps=self.newest("cut") + 2)
        self.assertIn("resumes at step", result.stdout)

    def test_R1_the_echo_of_a_signal_is_no_second_one(self):
        process = self.run_until("cut", 3, steps=4000)
        process.send_signal(signal.SIGINT)  # as timeout(1) does: to the process, then to its group
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)
        self.assertIn("continues", rest)

    def newest(self, out):
        found = self.checkpoints(out)
        return int(found[-1].name[5:13]) if found else -1

    def test_R2_kills_at_random_instants_lose_at_most_a_step(self):
        draw = random.Random(2)
        begin = time.monotonic()
        self.train("trial", steps=30)
        life = 0.6 * (time.monotonic() - begin)  # from the first instant to some steps on
        steps = min(600, 30 + 10 * KILLS)
        self.train("whole", steps=steps)
        inside = through = printed = 0
        for _ in range(KILLS):
            process = subprocess.Popen(self.command("killed", "--resume", steps=steps),
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            time.sleep(draw.uniform(0, life))
            process.kill()
            output, errors = process.communicate()
            self.assertEqual(errors, "")
            resumed = re.search(r"resumes at step (\d+)", output)
            if resumed:
                self.assertGreaterEqual(int(resumed[1]), printed - 1)
            for step in re.findall(r"^step +(\d+)/\d+  loss", output, re.MULTILINE):
                printed = max(printed, int(step))
            self.assertGreaterEqual(self.newest("killed"), printed - 1)
            if (self.folder / "killed").exists():
                inside += any(name.endswith(".tmp") for name in self.files("killed"))
            if self.newest("killed") == steps:  # a new one for the kills that are left
                self.train("killed", "--resume", steps=steps)
                self.same_result("whole", "killed")
                shutil.rmtree(self.folder / "killed")
                through += 1
                printed = 0
        self.train("killed", "--resume", steps=steps)
        self.same_result("whole", "killed")
        self.report(f"R2: {KILLS} kills, {inside} of them inside a save; {through + 1} runs of {steps} "
                    "steps, the bits of an unbroken one")

    def report(self, line):
        if "CEPHALO_REPORT" in os.environ:
            with open(os.environ["CEPHALO_REPORT"], "a") as file:
                file.write(line + "\n")

    def test_heads_may_share_keys_and_values(self):
        flags = ("--num-heads", "4", "--num-kv-heads", "2")
        what = "1 layers x 4 heads (2 of keys and values), d_model 16"
        self.assertIn(what, self.train("model", *flags, steps=2).stdout)
        report = subprocess.run([CEPHALO, "inspect", "--json", self.folder / "model"],
                                capture_output=True, text=True, check=True)
        report = json.loads(report.stdout)
        self.assertIn(what, report["what"])
        self.assertEqual((report["gpt"]["num_heads"], report["gpt"]["num_kv_heads"]), (4, 2))
        self.assertEqual(json.loads((self.folder / "model/config.json").read_text())["num_kv_heads"], 2)
        text = subprocess.run([CEPHALO, "generate", "The cat", "--model", self.folder / "model",
                               "--new-tokens", "4"], capture_output=True)
        self.assertEqual(text.returncode, 0, text.stderr)
        self.train("model", "--resume", *flags, steps=4)
        self.assertEqual(
            self.error("model", "--resume", "--num-heads", "4", "--num-kv-heads", "1", status=2)
            .splitlines()[0],
            "--num-kv-heads: 1, the run that is resumed has 2; omit it, or start a new run in "
            "another folder")
        self.assertIn("--num-kv-heads: 3 does not divide --num-heads 4",
                      self.error("other", "--num-heads", "4", "--num-kv-heads", "3", status=2))

    def test_R6_a_resumed_run_is_the_unbroken_one(self):
        self.train("whole")
        process = self.run_until("parts", 1, steps=20)
        process.kill()
        process.communicate()
        again = [CEPHALO, "train", "--resume", "--out", str(self.folder / "parts"), "--threads", "1"]
        self.assertEqual(subprocess.run(again, capture_output=True).returncode, 0)
        self.same_result("whole", "parts")

    def test_more_steps_go_on_and_other_sizes_do_not(self):
        self.train("model", steps=5)
        self.assertIn("already has a run, at step 5; --resume continues it", self.error("model"))
        result = self.train("model", "--resume", steps=9)
        self.assertIn("resumes at step 5 of 9", result.stdout)
        command = [CEPHALO, "train", "--resume", "--out", self.folder / "model", "--d-model", "32"]
        other = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(other.returncode, 2)
        self.assertIn("--d-model: 32, the run that is resumed has 16", other.stderr)
        gone = subprocess.run([CEPHALO, "train", "--resume", "--out", self.folder / "no"],
                              capture_output=True, text=True)
        self.assertEqual(gone.returncode, 1)
        self.assertIn("does not exist; there is nothing to resume", gone.stderr)


class Disk(InFolder):
    def test_R3_a_file_that_may_not_grow(self):
        self.train("model", steps=3)
        before = {p: p.read_bytes() for p in self.checkpoints("model")}
        blocks = self.checkpoints("model")[-1].stat().st_size // 1024 - 1
        command = " ".join(map(repr, self.command("model", "--resume", steps=6)))
        result = subprocess.run(["bash", "-c", f"ulimit -f {blocks}; exec {command}"],
                                capture_output=True, text=True)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertEqual(result.stderr, f"error: {self.folder}/model/checkpoints/"
                                        "step-00000004.safetensors: write: File too large\n")
        self.assertEqual({p: p.read_bytes() for p in self.checkpoints("model")}, before)
        self.assertEqual([n for n in self.files("model") if n.endswith(".tmp")], [])
        self.train("model", "--resume", steps=6)

    def test_R3_a_full_disk(self):
        disk = self.folder / "disk"
        disk.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "none", disk],
                          capture_output=True).returncode != 0:
            self.skipTest("no disk can be made here")
        try:
            error = self.error("disk/model")
            self.assertRegex(error, r"No space left on device$")
            self.assertEqual([n for n in self.files("disk/model") if n.endswith(".tmp")], [])
        finally:
            subprocess.run(["umount", disk])

    def test_R3_a_folder_that_nobody_may_write_to(self):
        out = self.folder / "model"
        out.mkdir()
        how = {}
        if os.geteuid() == 0:  # whom nothing stops
            how = {"user": 65534, "group": 65534}
            os.chmod(self.folder, 0o755)
        os.chmod(out, 0o555)
        try:
            subprocess.run([CEPHALO, "--version"], capture_output=True, check=True, **how)
        except (OSError, subprocess.CalledProcessError):
            self.skipTest("nobody cannot run the program")
        self.assertRegex(self.error("model", **how), f"^{out}/.*: Permission denied$")
        self.assertEqual(os.listdir(out), [])

    def test_R3_a_folder_that_goes_away(self):
        process = self.run_until("model", 3)
        # All of it at once: a folder that is emptied file by file may get new ones meanwhile, and stay.
        os.rename(self.folder / "model/checkpoints", self.folder / "gone")
        process.stdout.read()
        self.assertEqual(process.wait(timeout=20), 1)
        self.assertRegex(process.stderr.read(),
                         r"^error: .*/model/checkpoints.*: No such file or directory\n$")

    def test_R4_synced_before_it_gets_its_name_and_the_folder_after(self):
        trace = self.folder / "trace"
        watch = ["strace", "-f", "-o", trace, "-e", "trace=openat,open,fsync,rename,renameat2"]
        if SANITIZED or shutil.which("strace") is None:
            self.skipTest("no strace")
        result = subprocess.run([*watch, *self.command("model", steps=2)], capture_output=True)
        if result.returncode != 0:
            self.skipTest("strace may not watch here")
        calls = trace.read_text()
        for step in range(3):
            name = f"step-{step:08}.safetensors"
            opened = re.search(rf'open(?:at)?\(.*{name}\.\S+\.tmp", O_WRONLY.* = (\d+)\n', calls)
            after = calls[opened.end():]
            synced = re.search(rf"fsync\({opened[1]}\) += 0", after)
            named = re.search(rf'rename\w*\(.*{name}\.\S+\.tmp".*{name}"\) = 0', after)
            self.assertLess(synced.end(), named.start())
            folder = re.search(r'open(?:at)?\(.*/checkpoints", .*O_DIRECTORY.* = (\d+)\n'
                               r'(?:.*\n)*?.*fsync\(\1\) += 0', after[named.end():])
            self.assertIsNotNone(folder)


class Damaged(InFolder):
    def damage(self, how):
        newest = self.checkpoints("model")[-1]
        data = bytearray(newest.read_bytes())
        if how == "flipped":
            data[len(data) // 2] ^= 4
        newest.write_bytes(b"" if how == "empty" else data[:-100] if how == "cut" else data)
        return newest

    def test_R5_a_damaged_checkpoint_is_told_and_passed_over_only_when_asked(self):
        self.train("whole", steps=12)
        for how in ("flipped", "cut", "empty"):
            shutil.rmtree(self.folder / "model", ignore_errors=True)
            process = self.run_until("model", 6, steps=12)
            process.kill()
            process.communicate()
            newest = self.damage(how)
            step = int(newest.name[5:13])
            error = self.error("model", "--resume", steps=12)
            self.assertEqual(error, f"{newest}: checksum: does not match the {newest.stat().st_size} bytes"
                                    " of the file; it is damaged, truncated or not a checkpoint; "
                                    f"--previous continues from step {step - 1}")
            result = self.train("model", "--resume", "--previous", steps=12)
            self.assertIn(f"continuing from step {step - 1} instead", result.stdout)
            self.same_result("whole", "model")

    def test_R5_nothing_to_fall_back_to(self):
        self.train("model", steps=4)
        for path in self.checkpoints("model"):
            path.write_bytes(b"")
        self.assertIn("no checkpoint can be read", self.error("model", "--resume", "--previous"))

    def test_R5_tokens_and_vocabulary_that_changed(self):
        self.train("model", steps=4)
        tokens = self.folder / "model/tokens.bin"
        good = tokens.read_bytes()
        data = bytearray(good)
        data[len(data) // 2] ^= 1
        tokens.write_bytes(data)
        self.assertTrue(self.error("model", "--resume", steps=6).startswith(f"{tokens}: "))
        tokens.write_bytes(good)
        self.train("model", "--resume", steps=6)

    def test_R7_leftovers_and_a_link_to_nowhere(self):
        self.train("model", steps=4)
        checkpoints = self.folder / "model/checkpoints"
        left = checkpoints / "step-00000005.safetensors.cephalo-0123456789abcdef.tmp"
        left.write_bytes(self.checkpoints("model")[-1].read_bytes()[:100])
        (checkpoints / "latest").unlink()
        (checkpoints / "latest").symlink_to("step-00000099.safetensors")
        result = self.train("model", "--resume", steps=6)
        self.assertIn(f"{left.name}: left by an interrupted save, removed\n", result.stdout)
        self.assertIn("latest: pointed at step-00000099.safetensors, now at step-00000004.safetensors\n",
                      result.stdout)
        self.assertEqual(os.readlink(checkpoints / "latest"), "step-00000006.safetensors")
        self.assertFalse(left.exists())

    def test_R7_a_run_removes_no_file_of_the_users(self):
        out = self.folder / "model"
        (out / "checkpoints").mkdir(parents=True)
        mine = [out / "backup.2024-11-15.tmp", out / "notes.1-0.tmp",
                out / "checkpoints/step-00000001.safetensors.1-0.tmp",
                out / "checkpoints/latest.tmp",
                out / "config.json.cephalo-0123456789abcdef.tmp"]
        for path in mine:
            path.write_text("precious")
        result = self.train("model", steps=3)
        self.train("model", "--resume", steps=6)
        self.assertNotIn("removed", result.stdout)
        for path in mine:
            self.assertEqual(path.read_text(), "precious")

    def test_R7_two_runs_in_one_folder(self):
        process = self.run_until("model", 2)
        self.assertEqual(self.error("model", "--resume"),
                         f"{self.folder}/model: another run is training in this folder; wait for it to "
                         "end or choose another folder")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)

    def test_R8_a_run_that_overflows_ends_and_keeps_its_last_good_checkpoint(self):
        error = self.error("model", "--learning-rate", "1e37", "--warmup", "0", "--clip", "0", steps=40)
        self.assertRegex(error, "had no finite gradient|NaN or infinite")
        self.assertFalse((self.folder / "model/model.safetensors").exists())
        self.assertNotEqual(self.checkpoints("model"), [])
        # The one that is left can be read; what is in it is finite.
        result = subprocess.run([CEPHALO, "inspect", self.checkpoints("model")[-1]],
                                capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stderr)
        for line in result.stdout.splitlines():
            self.assertTrue("NaN" not in line or line.startswith("  history."), line)


if __name__ == "__main__":
    names = [word for word in sys.argv[2:] if word.startswith(("Train", "Export", "Inter", "Disk", "Damaged"))]
    unittest.main(argv=sys.argv[:1] + names)
